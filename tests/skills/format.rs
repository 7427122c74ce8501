//! Which front matters are read, and with which warnings and errors.

use std::path::MAIN_SEPARATOR;

use serde_json::json;
use turnstream::ErrorKind;
use turnstream::tool::Skill;

use crate::SkillsFolder;

/// Reads a `SKILL.md` in a folder with the name `pdf`. An error is returned without the path.
async fn read(text: impl AsRef<[u8]>) -> Result<Skill, String> {
    let folder = SkillsFolder::new();
    folder.write("pdf/SKILL.md", text);
    let [skill] = folder.list().await.try_into().unwrap();
    skill.map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Store);
        let path = folder.path().join("pdf").display().to_string();
        let message = error.message().strip_prefix(&path);
        let message = message.unwrap_or_else(|| panic!("the path is missing: {error}"));
        message.replace(MAIN_SEPARATOR, "/")
    })
}

async fn read_fields(fields: &str) -> Skill {
    read(format!("---\nname: pdf\n{fields}\n---\nRead it.\n")).await.unwrap()
}

#[tokio::test]
async fn all_fields_of_the_format_are_read() {
    let skill = read_fields(
        "description: Reads PDFs\nlicense: MIT\ncompatibility: Needs a network\n\
         metadata:\n  author: Ada\n  version: \"1.0\"\nallowed-tools: Bash(git:*) Read\nmodel: large",
    )
    .await;
    assert_eq!((&*skill.name, &*skill.description), ("pdf", "Reads PDFs"));
    assert_eq!(skill.license.as_deref(), Some("MIT"));
    assert_eq!(skill.compatibility.as_deref(), Some("Needs a network"));
    assert_eq!(json!(skill.metadata), json!({ "author": "Ada", "version": "1.0" }));
    assert_eq!(skill.allowed_tools.as_deref(), Some("Bash(git:*) Read"));
    assert_eq!(skill.warnings, [""; 0]);
    assert!(skill.folder.ends_with("pdf"));
}

#[tokio::test]
async fn fields_of_other_types_are_read_as_text() {
    let skill = read_fields(
        "description: 12\nlicense: 2\ncompatibility:\nmetadata:\nallowed-tools: [Read, Bash]",
    )
    .await;
    assert_eq!(skill.description, "12");
    assert_eq!(skill.license.as_deref(), Some("2"));
    assert_eq!((skill.compatibility, skill.metadata.len()), (None, 0));
    assert_eq!(skill.allowed_tools.as_deref(), Some("Read Bash"));
    let skill = read_fields("description: >-\n  Reads\n  PDFs\nmetadata: 1").await;
    assert_eq!(skill.description, "Reads PDFs");
    assert_eq!(skill.warnings, ["`metadata` is not a map"]);
}

#[tokio::test]
async fn lengths_are_counted_in_characters() {
    let of_lens = async |name: usize, description: usize, compatibility: usize| {
        let folder = SkillsFolder::new();
        let text = format!(
            "---\nname: {}\ndescription: {}\ncompatibility: {}\n---\n",
            "é".repeat(name),
            "語".repeat(description),
            "ß".repeat(compatibility),
        );
        folder.write(&format!("{}/SKILL.md", "é".repeat(name)), text);
        folder.list().await.remove(0).unwrap()
    };
    let skill = of_lens(64, 1_024, 500).await;
    assert_eq!(skill.description.chars().count(), 1_024);
    assert_eq!(skill.warnings, [""; 0]);
    let expected = [
        "`description` has 1025 characters, 1024 are allowed",
        "`name` has 65 characters, 64 are allowed",
        "`compatibility` has 501 characters, 500 are allowed",
    ];
    assert_eq!(of_lens(65, 1_025, 501).await.warnings, expected);
}

#[tokio::test]
async fn a_byte_order_mark_and_crlf_line_ends_are_accepted() {
    let text =
        "\u{feff}---\r\nname: pdf\r\ndescription: |\r\n  Reads\r\n  PDFs\r\n---\r\nRead it.\r\n";
    let skill = read(text).await.unwrap();
    assert_eq!(skill.description, "Reads\nPDFs");
    assert_eq!(skill.warnings, [""; 0]);
}

#[tokio::test]
async fn empty_lines_before_the_front_matter_are_accepted() {
    assert!(read("\n\n---\nname: pdf\ndescription: x\n---\n").await.unwrap().warnings.is_empty());
}

#[tokio::test]
async fn a_value_with_a_bare_colon_is_read_as_plain_text() {
    let skill = read_fields("description: Use this: when it's a PDF\nlicense: MIT").await;
    assert_eq!(skill.description, "Use this: when it's a PDF");
    assert_eq!(skill.license.as_deref(), Some("MIT"));
    let warning = "line 3: the value of `description` is not valid YAML, and is read as plain text";
    assert_eq!(skill.warnings, [warning]);
}

#[tokio::test]
async fn other_values_that_are_not_yaml_are_read_as_plain_text() {
    let skill = read_fields("description: Use this: when\n  it is: a PDF\nlicense: MIT").await;
    assert_eq!(skill.description, "Use this: when it is: a PDF");
    let skill = read_fields("argument-hint: [--init] [--verify]\ndescription: @user asks").await;
    assert_eq!(skill.description, "@user asks");
    assert_eq!(skill.warnings.len(), 2, "{:?}", skill.warnings);
}

#[tokio::test]
async fn broken_yaml_names_the_file_and_the_line() {
    let broken = async |fields: &str| read(format!("---\nname: pdf\n{fields}\n---\n")).await;
    let error = broken("description: Reads PDFs\nlicense: \"MIT").await.unwrap_err();
    assert!(error.starts_with("/SKILL.md:4: "), "{error}");
    assert!(!error.contains("line"), "another line is named: {error}");
    let error = broken("description: Use this: when\nmetadata: {a: ]").await.unwrap_err();
    assert!(error.starts_with("/SKILL.md:3: "), "the first error is named: {error}");
    let error = broken("description:\n  - a\n  - b").await.unwrap_err();
    assert!(error.starts_with("/SKILL.md:4: ") || error.starts_with("/SKILL.md:3: "), "{error}");
    let error = broken("description: x\ndescription: y").await.unwrap_err();
    assert!(error.starts_with("/SKILL.md:4: "), "{error}");
    let error = read("\n\n---\nname: pdf\nlicense: \"MIT\n---\n").await.unwrap_err();
    assert!(error.starts_with("/SKILL.md:5: "), "empty lines are counted: {error}");
}

#[tokio::test]
async fn a_skill_without_a_description_is_an_error() {
    let missing = "/SKILL.md:2: `description` is missing";
    for text in ["---\nname: pdf\n---\n", "---\nname: pdf\ndescription:\n---\n"] {
        assert_eq!(read(text).await.unwrap_err(), missing);
    }
    let error = read("---\nname: pdf\ndescription: ' '\n---\n").await.unwrap_err();
    assert_eq!(error, "/SKILL.md:3: `description` is empty");
}

#[tokio::test]
async fn a_file_without_a_complete_front_matter_is_an_error() {
    let first = "/SKILL.md:1: there is no front matter: the first line is not `---`";
    assert_eq!(read("# PDF\n").await.unwrap_err(), first);
    assert_eq!(read("").await.unwrap_err(), first);
    let open = "/SKILL.md:1: the front matter is not closed by a line with `---`";
    assert_eq!(read("---\nname: pdf\ndescription: x\n").await.unwrap_err(), open);
    let long = format!("---\nname: pdf\ndescription: {}\n---\n", "x".repeat(60_000));
    assert_eq!(read(long).await.unwrap_err(), open, "the beginning of the file is read");
    let error = read(b"---\nname: \xff\n---\n").await.unwrap_err();
    assert_eq!(error, ": `SKILL.md` is not a text, but 16 bytes of binary data");
}

#[tokio::test]
async fn the_folders_name_is_the_skills_and_another_name_is_a_warning() {
    let text = |name: &str| format!("---\n{name}\ndescription: x\n---\n");
    let skill = read(text("name: forms")).await.unwrap();
    assert_eq!(skill.name, "pdf");
    let warning = "`name` is `forms`, not the folder's name `pdf`, which is used";
    assert_eq!(skill.warnings, [warning]);
    let skill = read(text("license: MIT")).await.unwrap();
    assert_eq!(skill.warnings, ["`name` is missing; the folder's name is used"]);

    let folder = SkillsFolder::new();
    folder.add("My Skill", "x");
    let warnings = folder.list().await.remove(0).unwrap().warnings;
    let warning = "the name `My Skill` must consist of lowercase letters, digits and inner hyphens";
    assert_eq!(warnings, [warning]);
}

#[tokio::test]
async fn only_folders_with_a_skill_file_are_skills() {
    let folder = SkillsFolder::new();
    folder.add("a", "x");
    folder.write("README.md", "Skills");
    folder.write("b/README.md", "This is not a skill");
    folder.write("c/d/SKILL.md", "This is not a skill of this folder");
    assert_eq!(folder.list().await.len(), 1);
}

#[tokio::test]
async fn the_folder_must_exist_and_contain_folders_of_skills() {
    let folder = SkillsFolder::new();
    folder.add("a", "x");
    let list = async |path: &str| {
        let skills = turnstream::tool::Skills::from_dir(folder.path().join(path));
        skills.list().await.unwrap_err().message().to_owned()
    };
    let error = list("missing").await;
    assert!(error.contains("missing cannot be read: "), "{error}");
    let error = list("a").await;
    assert!(error.ends_with("is the folder of a single skill: use the folder that contains it"));
}

#[tokio::test]
async fn the_first_of_two_folders_wins() {
    let (first, second) = (SkillsFolder::new(), SkillsFolder::new());
    first.add("a", "first");
    second.add("a", "second");
    second.add("b", "second");
    let skills = first.skills().with_dir(second.path()).list().await.unwrap();
    let skills: Vec<_> =
        skills.iter().map(|skill| skill.as_ref().map(|it| &*it.description)).collect();
    assert!(matches!(skills[..], [Ok("first"), Err(_), Ok("second")]), "{skills:?}");
}
