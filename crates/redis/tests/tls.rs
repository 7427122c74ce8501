//! Encrypted connections.

use turnstream::hub::LogUnavailable;
use turnstream_redis::RedisEvents;

#[tokio::test]
async fn an_encrypted_connection_to_a_server_without_encryption_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let error = RedisEvents::connect(format!("rediss://{address}/")).await.unwrap_err();
    assert!(error.find_source::<LogUnavailable>().is_some(), "{error:?}");
}
