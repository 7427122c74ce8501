//! Which files of a skill are read, and which are refused.

use serde_json::json;

use crate::{SkillsFolder, call};

async fn read(folder: &SkillsFolder, path: &str) -> String {
    call(&folder.skills(), "read_skill_file", json!({ "skill": "pdf", "path": path })).await
}

fn folder_with_a_skill() -> SkillsFolder {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    folder.write("pdf/references/forms.md", "Fill the form.\n");
    folder.write("secret.txt", "secret");
    folder.write("other/secret.txt", "secret");
    folder
}

#[tokio::test]
async fn a_loaded_skill_has_its_instructions_and_the_fields_and_files_beside_them() {
    let folder = folder_with_a_skill();
    folder.write(
        "pdf/SKILL.md",
        "\u{feff}---\r\nname: pdf\r\ndescription: Reads PDFs\r\nlicense: MIT\r\nmetadata: {a: 1}\r\n\
         allowed-tools: Bash\r\n---\r\n\r\nRead it.\r\n---\r\nThen stop.\r\n",
    );
    folder.write("pdf/scripts/run.py", "exit(1)");
    folder.write("pdf/.hidden", "");
    let loaded = call(&folder.skills(), "load_skill", json!({ "name": "pdf" })).await;
    let expected = format!(
        "skill: pdf\nfolder: {}\nlicense: MIT\nmetadata: {{\"a\":1}}\n\
         allowed-tools (for information, not a permission): Bash\n\
         files: references/forms.md, scripts/run.py\n\nRead it.\r\n---\r\nThen stop.",
        folder.path().join("pdf").display()
    );
    assert_eq!(loaded, expected);
}

#[tokio::test]
async fn at_most_a_hundred_files_are_listed() {
    let folder = folder_with_a_skill();
    let load = async || call(&folder.skills(), "load_skill", json!({ "name": "pdf" })).await;
    (0..99).for_each(|n| folder.write(&format!("pdf/page-{n}.md"), ""));
    let loaded = load().await;
    assert!(!loaded.contains("and more"), "{loaded}");
    folder.write("pdf/assets/one.md", "");
    let loaded = load().await;
    assert!(loaded.contains(", and more\n"), "{loaded}");
    assert_eq!(loaded.matches(".md").count(), 100);
    (0..1_000).for_each(|n| folder.write(&format!("pdf/empty-{n}/.hidden"), ""));
    // The system determines which entries come first.
    let loaded = load().await;
    let is_incomplete = loaded.contains(", and more\n") || loaded.contains("too many to list\n");
    assert!(is_incomplete, "{loaded}");
}

#[tokio::test]
async fn a_folder_with_too_many_entries_before_the_first_file_is_not_shown_as_empty() {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    (0..1_001).for_each(|n| folder.write(&format!("pdf/empty-{n}/.hidden"), ""));
    let loaded = call(&folder.skills(), "load_skill", json!({ "name": "pdf" })).await;
    assert!(loaded.contains("\nfiles: too many to list\n"), "{loaded}");
}

#[tokio::test]
async fn a_long_field_of_a_loaded_skill_is_cut() {
    let folder = folder_with_a_skill();
    let text = format!("---\ndescription: x\nlicense: {}\n---\nRead it.", "y".repeat(10_000));
    folder.write("pdf/SKILL.md", text);
    let loaded = call(&folder.skills(), "load_skill", json!({ "name": "pdf" })).await;
    assert!(loaded.len() < 4_500 && loaded.ends_with("\n\nRead it."), "{loaded}");
}

#[tokio::test]
async fn a_file_in_the_skills_folder_is_read() {
    let folder = folder_with_a_skill();
    assert_eq!(read(&folder, "references/forms.md").await, "Fill the form.\n");
    assert_eq!(read(&folder, "./references/forms.md").await, "Fill the form.\n");
}

#[tokio::test]
async fn a_path_out_of_the_skills_folder_is_refused() {
    let folder = folder_with_a_skill();
    let absolute = folder.path().join("secret.txt").display().to_string();
    for path in ["../secret.txt", "references/../../secret.txt", "..", "/etc/hostname", &absolute] {
        let result = read(&folder, path).await;
        assert_eq!(result, format!("Error: `{path}` is outside of the skill's folder"));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_out_of_the_skills_folder_is_refused() {
    use std::os::unix::fs::symlink;
    let folder = folder_with_a_skill();
    symlink("../secret.txt", folder.path().join("pdf/link.txt")).unwrap();
    symlink(folder.path().join("other"), folder.path().join("pdf/linked")).unwrap();
    symlink("references/forms.md", folder.path().join("pdf/inside.md")).unwrap();
    for path in ["link.txt", "linked/secret.txt"] {
        let result = read(&folder, path).await;
        assert_eq!(result, format!("Error: `{path}` is outside of the skill's folder"));
    }
    assert_eq!(read(&folder, "inside.md").await, "Fill the form.\n");
    let loaded = call(&folder.skills(), "load_skill", json!({ "name": "pdf" })).await;
    assert!(loaded.contains("\nfiles: references/forms.md\n\n"), "links are not listed: {loaded}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_skill_behind_a_link_out_of_its_folder_is_refused() {
    use std::os::unix::fs::symlink;
    let (folder, elsewhere) = (folder_with_a_skill(), SkillsFolder::new());
    elsewhere.add("evil", "x");
    symlink(elsewhere.path().join("evil"), folder.path().join("evil")).unwrap();
    folder.write("file/notes.md", "");
    symlink(elsewhere.path().join("evil/SKILL.md"), folder.path().join("file/SKILL.md")).unwrap();
    symlink(folder.path().join("pdf"), folder.path().join("same")).unwrap();
    let skills = folder.list().await;
    let results: Vec<String> = skills
        .iter()
        .map(|skill| match skill {
            Ok(skill) => skill.name.clone(),
            Err(error) => error.message().replace(&folder.path().display().to_string(), ""),
        })
        .collect();
    let expected = [
        "/evil is a link to a folder outside of ",
        "/file: `SKILL.md` is outside of the skill's folder",
        "pdf",
        "same",
    ];
    assert_eq!(results, expected);
    let loaded = call(&folder.skills(), "load_skill", json!({ "name": "evil" })).await;
    assert!(loaded.starts_with("Error: "), "{loaded}");
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_without_cutting_characters() {
    let folder = folder_with_a_skill();
    let text = "a语言".repeat(20_000);
    folder.write("pdf/long.md", &text);
    let skills = folder.skills();
    let (mut read, mut offset, mut parts) = (String::new(), 0, 0);
    loop {
        let arguments = json!({ "skill": "pdf", "path": "long.md", "offset": offset });
        let part = call(&skills, "read_skill_file", arguments).await;
        parts += 1;
        assert!(part.len() < 50_000);
        let Some((part, notice)) = part.split_once("\n\n[The file continues.") else {
            read.push_str(&part);
            break;
        };
        read.push_str(part);
        let next = notice.strip_suffix(".]").unwrap().rsplit(' ').next().unwrap();
        offset = next.parse().unwrap();
    }
    assert_eq!((read == text, parts), (true, 3));
    // An offset within a character skips the rest of that character.
    let within = json!({ "skill": "pdf", "path": "long.md", "offset": 139_995 });
    assert_eq!(call(&skills, "read_skill_file", within).await, "言");
    let beyond = json!({ "skill": "pdf", "path": "long.md", "offset": 140_001 });
    let beyond = call(&skills, "read_skill_file", beyond).await;
    assert_eq!(beyond, "Error: `long.md` has only 140000 bytes");
}

#[tokio::test]
async fn the_rest_of_long_instructions_is_read_as_a_file() {
    let folder = folder_with_a_skill();
    let text = crate::skill_text("pdf", "Reads PDFs") + &"x".repeat(60_000) + "the end";
    folder.write("pdf/SKILL.md", text);
    let skills = folder.skills();
    let loaded = call(&skills, "load_skill", json!({ "name": "pdf" })).await;
    assert!(loaded.ends_with("path `SKILL.md`, offset 49152.]"), "{}", &loaded[48_000..]);
    let rest = json!({ "skill": "pdf", "path": "SKILL.md", "offset": 49_152 });
    assert!(call(&skills, "read_skill_file", rest).await.ends_with("xthe end"));
}

#[tokio::test]
async fn a_file_that_is_not_a_text_is_an_error() {
    let folder = folder_with_a_skill();
    folder.write("pdf/logo.png", b"\x89PNG\r\n\x1a\n\0\0");
    folder.write("pdf/zeros.bin", b"text\0text");
    folder.write("pdf/cut.txt", "é".as_bytes().split_last().unwrap().1);
    for (path, len) in [("logo.png", 10), ("zeros.bin", 9), ("cut.txt", 1)] {
        let result = read(&folder, path).await;
        assert_eq!(
            result,
            format!("Error: `{path}` is not a text, but {len} bytes of binary data")
        );
    }
    assert_eq!(read(&folder, "references").await, "Error: `references` is not a file");
    let missing = read(&folder, "missing.md").await;
    assert!(missing.starts_with("Error: `missing.md` cannot be read: "), "{missing}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_is_not_opened() {
    let folder = folder_with_a_skill();
    let pipe = folder.path().join("pdf/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(read(&folder, "pipe").await, "Error: `pipe` is not a file");
}

#[tokio::test]
async fn an_unknown_skill_gets_similar_names() {
    let folder = folder_with_a_skill();
    folder.write("forms/SKILL.md", "---\nname: form-filler\ndescription: Fills forms\n---\nFill.");
    let skills = folder.skills();
    let load = async |name: &str| call(&skills, "load_skill", json!({ "name": name })).await;
    assert_eq!(load("form").await, "Error: there is no skill `form`; similar ones are `forms`");
    assert_eq!(load("../pdf").await, "Error: there is no skill `../pdf`; similar ones are `pdf`");
    assert_eq!(load("zzz").await, "Error: there is no skill `zzz`");
    assert!(load("form-filler").await.ends_with("\n\nFill."), "the other name leads to it too");
}
