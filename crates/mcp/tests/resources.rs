//! Resources and prompts: listed, read, and added to a request by the user's choice.

use std::collections::BTreeMap;

use turnstream::ErrorKind;
use turnstream::item::{Content, Part};
use turnstream_testing::mcp::{McpEra, McpServer};

use crate::support::client_of;

fn server(era: McpEra) -> McpServer {
    McpServer::new()
        .with_era(era)
        .with_page_size(1)
        .with_resource("file:///notes", "notes", "text/plain", "Buy milk.")
        .with_binary_resource("file:///dot", "dot", "image/png", vec![0, 0, 0])
        .with_prompt("greet", "Greets somebody", &["name"], "Say hello to {name}.")
}

#[tokio::test(start_paused = true)]
async fn resources_are_listed_and_read_as_content() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let client = client_of(&server(era));
        let names: Vec<_> =
            client.resources().await.unwrap().into_iter().map(|resource| resource.name).collect();
        assert_eq!(names, ["dot", "notes"]);
        let text = client.read_resource("file:///notes").await.unwrap();
        assert_eq!(text, Content::from("file:///notes:\nBuy milk."));
        let image = client.read_resource("file:///dot").await.unwrap();
        assert_eq!(image, Content::Parts(vec![Part::image("image/png", b"\0\0\0")]));
        let error = client.read_resource("file:///none").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::Server), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_with_arguments_yields_items_for_a_run() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let client = client_of(&server(era));
        let prompts = client.prompts().await.unwrap();
        assert_eq!((&*prompts[0].name, &*prompts[0].arguments[0].name), ("greet", "name"));
        let values = BTreeMap::from([("name".to_owned(), "Ada".to_owned())]);
        let items = client.prompt("greet", &values).await.unwrap();
        assert_eq!(items[0].as_user().map(Content::text).as_deref(), Some("Say hello to Ada."));
        assert!(client.prompt("greet", &BTreeMap::new()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_resources_and_prompts_is_not_queried_for_them() {
    let server = McpServer::new();
    let client = client_of(&server);
    assert!(client.resources().await.unwrap().is_empty());
    assert!(client.prompts().await.unwrap().is_empty());
    let asked =
        |method: &String| method.starts_with("resources/") || method.starts_with("prompts/");
    assert!(!server.handle().methods().iter().any(asked));
}
