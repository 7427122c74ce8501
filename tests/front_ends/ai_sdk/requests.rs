//! Requests as the clients themselves send them.

use serde_json::{Value, json};
use turnstream::Agent;
use turnstream::item::Part;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::ui::ClientLimits;
use turnstream::ui::ai_sdk::{ChatRequest, ClientAction};

use crate::clients::Clients;

const CLIENTS: [&str; 5] = ["ai5_0_0", "ai5", "ai6_0_0", "ai6", "ai7"];

fn agent() -> Agent {
    let spec = ToolSpec::new("delete", "Deletes", json!({ "type": "object" }));
    let delete = Tool::raw(spec, |_, _| async { "deleted" }).unwrap().requires_approval();
    let model = Scripted::new([Reply::new().call("delete", json!({})), Reply::text("Done.")]);
    Agent::new(model).with_tools([delete])
}

fn parse(posted: &Value) -> ChatRequest {
    assert_eq!(
        (&posted["method"], &posted["url"]),
        (&json!("POST"), &json!("http://localhost/api/chat"))
    );
    let body = posted["body"].as_str().unwrap();
    ChatRequest::parse(posted["type"].as_str(), body.as_bytes(), &ClientLimits::default()).unwrap()
}

#[tokio::test]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn requests_of_real_clients_are_parsed() {
    let mut clients = Clients::start();
    let agent = agent();
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    let outcome = session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    let approval_id = &outcome.pending[0].approval_id;
    let user = json!({ "id": "u", "role": "user", "parts": [
        { "type": "text", "text": "Look" },
        { "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA" },
    ] });
    let assistant = json!({ "id": "c:1", "role": "assistant", "parts": [
        { "type": "step-start" },
        { "type": "dynamic-tool", "toolName": "delete", "toolCallId": "call_1_1", "input": {},
          "state": "approval-responded", "approval": { "id": approval_id, "approved": true } },
    ] });
    for client in CLIENTS {
        let mut post =
            |messages: Value, trigger: &str, message_id: Option<&str>, only_last: bool| {
                let mut request = json!({
                    "do": "post", "client": client, "chat_id": "c", "messages": messages,
                    "trigger": trigger, "only_last": only_last,
                });
                if let Some(id) = message_id {
                    request["message_id"] = json!(id);
                }
                parse(&clients.ask(request))
            };
        for only_last in [false, true] {
            let said = post(json!([assistant, user]), "submit-message", None, only_last);
            assert_eq!(said.chat_id, "c");
            let parts = vec!["Look".into(), Part::image("image/png", b"\0\0\0")];
            assert_eq!(
                said.action(&session, &agent).unwrap(),
                ClientAction::Run(parts.into()),
                "{client}"
            );

            let messages = json!([user, assistant]);
            let answered = post(messages, "submit-message", Some("c:1"), only_last);
            let action = answered.action(&session, &agent).unwrap();
            let ClientAction::Resume { message_id, verdicts } = action else { panic!("{client}") };
            assert_eq!((&*message_id, &verdicts[0].1), ("c:1", &Verdict::Approve), "{client}");
        }
        let again = post(json!([user]), "regenerate-message", Some("c:1"), false);
        assert_eq!(again.action(&session, &agent).unwrap(), ClientAction::Regenerate { before: 1 });
    }
}
