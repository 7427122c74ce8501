//! All routes.

use std::collections::HashMap;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use axum::response::Response;
use axum::routing::{MethodFilter, on};

use super::call::{Answer, Call, guard};
use super::chat_server::ChatServer;
use super::failure::{ErrorForm, Failure};
use super::{ag_ui as ag_ui_route, ai_sdk as ai_sdk_routes, sessions};

/// The function of a route.
#[derive(Clone, Copy)]
enum Action {
    Start,
    Events,
    Stop,
    Steer,
    Approve,
    Deny,
    Grants,
    RevokeGrant,
    Fork,
    Regenerate,
    Messages,
    Trace,
    List,
    Health,
    AiSdkChat,
    AiSdkResume,
    AiSdkStop,
    AiSdkMessages,
    AgUiRun,
}

/// All routes: the router serves what is listed here, and nothing else.
const ROUTES: [(Method, &str, Action); 19] = [
    (Method::POST, "/sessions/{id}/runs", Action::Start),
    (Method::GET, "/sessions/{id}/events", Action::Events),
    (Method::POST, "/sessions/{id}/stop", Action::Stop),
    (Method::POST, "/sessions/{id}/steer", Action::Steer),
    (Method::POST, "/sessions/{id}/approve", Action::Approve),
    (Method::POST, "/sessions/{id}/deny", Action::Deny),
    (Method::GET, "/sessions/{id}/grants", Action::Grants),
    (Method::POST, "/sessions/{id}/grants/revoke", Action::RevokeGrant),
    (Method::POST, "/sessions/{id}/fork", Action::Fork),
    (Method::POST, "/sessions/{id}/regenerate", Action::Regenerate),
    (Method::GET, "/sessions/{id}/messages", Action::Messages),
    (Method::GET, "/sessions/{id}/trace", Action::Trace),
    (Method::GET, "/sessions", Action::List),
    (Method::GET, "/health", Action::Health),
    (Method::POST, "/api/chat", Action::AiSdkChat),
    (Method::GET, "/api/chat/{id}/stream", Action::AiSdkResume),
    (Method::POST, "/api/chat/{id}/stop", Action::AiSdkStop),
    (Method::GET, "/api/chat/{id}/messages", Action::AiSdkMessages),
    (Method::POST, "/ag-ui", Action::AgUiRun),
];

impl ChatServer {
    /// Returns a router with all routes. It is also a function from requests to responses for other
    /// servers, since a router is a `tower` service.
    ///
    /// An [`AgentServer`](crate::AgentServer) has the route `POST /api/chat` as well, so merging
    /// the two routers panics. Nest one of them at a path of its own:
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    /// use turnstream_server::{AgentServer, ChatServer};
    ///
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let models = AgentServer::new().with_model("assistant", agent.clone());
    /// let router = ChatServer::new(agent).router().nest("/models", models.router());
    /// # drop(router);
    /// ```
    pub fn router(&self) -> Router {
        let mut routes = Router::new();
        for (method, path, action) in ROUTES {
            let filter = match method {
                Method::POST => MethodFilter::POST,
                _ => MethodFilter::GET,
            };
            let handler =
                async move |State(server): State<Self>,
                            path: Result<Path<HashMap<String, String>>, PathRejection>,
                            request: Request| {
                    action.respond(server, path, request).await
                };
            routes = routes.route(path, on(filter, handler));
        }
        let no_method = async |uri: Uri| {
            let message = "this route has another method";
            let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, message);
            failure.respond(ErrorForm::of_path(uri.path()))
        };
        let no_page = async |uri: Uri| {
            Failure::not_found("there is no such page").respond(ErrorForm::of_path(uri.path()))
        };
        routes
            .method_not_allowed_fallback(no_method)
            .with_state(self.clone())
            .merge(self.0.app_routes.clone())
            .fallback(no_page)
            .layer(middleware::from_fn_with_state(self.clone(), guard))
    }

    /// Lists the method and the path of each route, without those of the
    /// [app](Self::with_routes).
    pub fn routes() -> impl Iterator<Item = (Method, &'static str)> {
        ROUTES.into_iter().map(|(method, path, _)| (method, path))
    }
}

impl Action {
    async fn respond(
        self,
        server: ChatServer,
        path: Result<Path<HashMap<String, String>>, PathRejection>,
        request: Request,
    ) -> Response {
        let form = ErrorForm::of_path(request.uri().path());
        let answer = match path {
            Ok(Path(mut path)) => {
                let session = path.remove("id").unwrap_or_default();
                match Call::receive(server.clone(), session, request).await {
                    Ok(call) => self.answer(call).await,
                    Err(failure) => Err(failure),
                }
            }
            Err(_) => Err(Failure::new(StatusCode::BAD_REQUEST, "the path is not valid")),
        };
        answer.unwrap_or_else(|failure| server.refuse(failure, form))
    }

    async fn answer(self, call: Call) -> Answer {
        match self {
            Self::Start => sessions::start(call).await,
            Self::Events => sessions::events(call).await,
            Self::Stop => sessions::stop(call).await,
            Self::Steer => sessions::steer(call).await,
            Self::Approve => sessions::approve(call).await,
            Self::Deny => sessions::deny(call).await,
            Self::Grants => sessions::grants(call).await,
            Self::RevokeGrant => sessions::revoke_grant(call).await,
            Self::Fork => sessions::fork(call).await,
            Self::Regenerate => sessions::regenerate(call).await,
            Self::Messages => sessions::messages(call).await,
            Self::Trace => sessions::trace(call).await,
            Self::List => sessions::list(call).await,
            Self::Health => sessions::health(&call),
            Self::AiSdkChat => ai_sdk_routes::chat(call).await,
            Self::AiSdkResume => ai_sdk_routes::resume(call).await,
            Self::AiSdkStop => ai_sdk_routes::stop(call).await,
            Self::AiSdkMessages => ai_sdk_routes::messages(call).await,
            Self::AgUiRun => ag_ui_route::run(call).await,
        }
    }
}
