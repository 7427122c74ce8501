//! All routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use turnstream::ui::ClientLimits;

use crate::app::App;
use crate::failure::Failure;
use crate::{access, ag_ui, chat, page_files, sessions};

pub(crate) fn router(app: Arc<App>) -> Router {
    let session = Router::new()
        .route("/runs", post(sessions::start))
        .route("/events", get(sessions::events))
        .route("/stop", post(sessions::stop))
        .route("/steer", post(sessions::steer))
        .route("/approve", post(sessions::approve))
        .route("/deny", post(sessions::deny))
        .route("/grants", get(sessions::grants))
        .route("/grants/revoke", post(sessions::revoke_grant))
        .route("/fork", post(sessions::fork))
        .route("/regenerate", post(sessions::regenerate))
        .route("/messages", get(sessions::messages))
        .route("/trace", get(sessions::trace));
    Router::new()
        .route("/", get(page_files::page))
        .route("/page/{*file}", get(page_files::file))
        .route("/login", get(access::login))
        .route("/health", get(sessions::health))
        .route("/about", get(sessions::about))
        .route("/sessions", get(sessions::list))
        .nest("/sessions/{id}", session)
        .route("/api/chat", post(chat::chat))
        .route("/api/chat/{id}/stream", get(chat::resume))
        .route("/api/chat/{id}/stop", post(chat::stop))
        .route("/api/chat/{id}/messages", get(chat::messages))
        .route("/ag-ui", post(ag_ui::run))
        .fallback(async || Failure::not_found("there is no such page"))
        .layer(DefaultBodyLimit::max(ClientLimits::default().max_bytes))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), access::guard))
        .with_state(app)
}
