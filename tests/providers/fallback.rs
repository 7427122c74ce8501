//! `Fallback` and `CircuitBreaker`: which provider is called, for which errors, and what a consumer
//! observes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use turnstream::event::EndReason;
use turnstream::provider::{
    Backoff, CircuitBreaker, Fallback, FallbackFailure, Provider, Reply, Retry, Scripted,
};
use turnstream::replay::Record;
use turnstream::stream::{TurnStream, TurnStreamExt};
use turnstream::tool::Tool;
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, Turn};

use turnstream_test_support::providers::{error_of_kind, usage_with_output, user_request};
use turnstream_test_support::tools::spec;

fn failing_model(kind: ErrorKind) -> Scripted {
    Scripted::from_fn(move |_, _| Reply::error(error_of_kind(kind)))
}

fn answering_model(text: &str) -> Scripted {
    let text = text.to_owned();
    Scripted::from_fn(move |_, _| text.clone()).with_model("second")
}

async fn request_turn(provider: &dyn Provider) -> Result<Arc<Turn>, Error> {
    provider.stream_turn(user_request()).into_turn().await
}

async fn collect_events(turn: TurnStream) -> Vec<TurnEvent> {
    turn.map(|event| event.unwrap()).collect().await
}

#[tokio::test]
async fn the_next_provider_is_used_after_errors_another_provider_could_avoid() {
    use ErrorKind::*;
    for kind in [
        Connect,
        Timeout,
        Auth,
        Billing,
        RateLimited,
        Overloaded,
        Server,
        ContextWindow,
        IncompleteTurn,
        Protocol,
        TooLarge,
    ] {
        let turn =
            request_turn(&Fallback::new(failing_model(kind)).or(answering_model("fine"))).await;
        assert_eq!(turn.unwrap().text(), "fine", "{kind}");
    }
    for kind in [InvalidRequest, Unsupported, Filtered, Hook, Panic, Store, Conflict, Other] {
        let second = answering_model("fine");
        let failed =
            request_turn(&Fallback::new(failing_model(kind)).or(second.clone())).await.unwrap_err();
        assert_eq!((failed, second.requests().len()), (error_of_kind(kind), 0));
    }
}

#[tokio::test]
async fn a_closure_can_select_other_errors() {
    let on = |error: &Error| error.kind() == ErrorKind::Filtered;
    let model =
        |kind| Fallback::new(failing_model(kind)).or(answering_model("fine")).fall_back_if(on);
    assert_eq!(request_turn(&model(ErrorKind::Filtered)).await.unwrap().text(), "fine");
    assert!(request_turn(&model(ErrorKind::Server)).await.is_err());
}

#[tokio::test]
async fn output_of_the_first_provider_is_retracted_and_counted() {
    let first = Scripted::new([Reply::new()
        .usage(usage_with_output(3))
        .think("hm")
        .say("half")
        .call_raw("a", "t", "{}")
        .disconnect()]);
    let model =
        Fallback::new(first).or(Scripted::new([Reply::text("all").usage(usage_with_output(5))]));
    let mut run = Agent::new(model).run("go");
    let mut void = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Turn(TurnEvent::Retracted { usage, .. }) = event.unwrap() {
            void.push(*usage);
        }
    }
    assert_eq!(void, [usage_with_output(3)]);
    assert_eq!(run.usage(), usage_with_output(3) + usage_with_output(5));
    let history = run.history();
    let said: Vec<&Item> = history.iter().skip(1).collect();
    assert_eq!((said.len(), said[0].as_text()), (1, Some("all")), "nothing void is left");
}

#[tokio::test]
async fn a_provider_that_failed_before_any_output_leaves_no_event() {
    let model = Fallback::new(failing_model(ErrorKind::Server)).or(answering_model("fine"));
    let events = collect_events(model.stream_turn(user_request())).await;
    assert_eq!(events, collect_events(answering_model("fine").stream_turn(user_request())).await);
}

#[tokio::test]
async fn a_model_named_in_the_request_applies_only_to_the_first_provider() {
    let (first, second) =
        (failing_model(ErrorKind::Server).with_model("first"), answering_model("fine"));
    let model = Fallback::new(first.clone()).or(second.clone());
    assert_eq!(model.model(), "first");
    let asked = Request { model: Some("bigger".into()), ..user_request() };
    let turn = model.stream_turn(asked).into_turn().await.unwrap();
    assert_eq!(turn.model(), Some("second"));
    assert_eq!(first.requests()[0].model.as_deref(), Some("bigger"));
    assert_eq!(second.requests()[0].model, None);
}

#[tokio::test]
async fn the_error_is_that_of_the_last_provider_and_contains_all_others() {
    let cut = Scripted::new([Reply::text("half").disconnect()]).with_model("third");
    let model = Fallback::new(failing_model(ErrorKind::RateLimited).with_model("first"))
        .or(failing_model(ErrorKind::Auth).with_model("second"))
        .or(cut);
    let failed = request_turn(&model).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(
        failed.find_source::<PartialTurn>().unwrap().text(),
        "half",
        "the last one's sources are there"
    );
    let all = failed.find_source::<FallbackFailure>().unwrap();
    let told: Vec<_> = all.errors().map(|(model, error)| (model, error.kind())).collect();
    let kinds = [ErrorKind::RateLimited, ErrorKind::Auth, ErrorKind::IncompleteTurn];
    assert_eq!(told, [("first", kinds[0]), ("second", kinds[1]), ("third", kinds[2])]);
    let earlier = "; before that, other providers failed: first: rate_limited; second: auth";
    assert!(all.to_string().ends_with(earlier), "{all}");
}

#[tokio::test]
async fn a_report_contains_every_providers_error_with_its_own_causes() {
    let fails = |message: &str, cause: &'static str| {
        let error = Error::new(ErrorKind::Server, message).with_source(io::Error::other(cause));
        Scripted::new([Reply::error(error)]).with_model("first")
    };
    let model = Fallback::new(fails("one failed", "no disk")).or(fails("two failed", "no net"));
    let failed = request_turn(&model).await.unwrap_err();
    let report = "two failed: no net; before that, other providers failed: first: one failed: \
        no disk";
    assert_eq!(format!("{failed:#}"), report);
    assert_eq!(failed.find_source::<io::Error>().unwrap().to_string(), "no net");

    // The message of the last error repeats that of its source.
    let model = Fallback::new(fails("one failed", "no disk")).or(fails("two: no net", "no net"));
    let failed = request_turn(&model).await.unwrap_err();
    let report = "two: no net: before that, other providers failed: first: one failed: no disk";
    assert_eq!(format!("{failed:#}"), report);
    assert_eq!(failed.find_source::<FallbackFailure>().unwrap().errors().count(), 2);

    // A report of another error that has this one as its source.
    let outer = Error::new(ErrorKind::Other, "it failed").with_source(failed);
    assert_eq!(format!("{outer:#}"), format!("it failed: {report}"));
    assert!(outer.find_source::<FallbackFailure>().is_some());
    assert_eq!(outer.find_source::<io::Error>().unwrap().to_string(), "no net");
}

#[tokio::test]
async fn an_error_that_is_not_selected_ends_the_fallback() {
    let third = answering_model("fine");
    let model = Fallback::new(failing_model(ErrorKind::Server))
        .or(failing_model(ErrorKind::InvalidRequest))
        .or(third.clone());
    let failed = request_turn(&model).await.unwrap_err();
    assert_eq!((failed.kind(), third.requests().len()), (ErrorKind::InvalidRequest, 0));
    assert_eq!(failed.find_source::<FallbackFailure>().unwrap().errors().count(), 2);
}

#[tokio::test]
async fn every_turn_tries_the_first_provider_first() {
    let first =
        Scripted::new([Reply::error(error_of_kind(ErrorKind::Server)), Reply::text("back")]);
    let model = Fallback::new(first).or(answering_model("stand-in"));
    assert_eq!(request_turn(&model).await.unwrap().text(), "stand-in");
    assert_eq!(request_turn(&model).await.unwrap().text(), "back");
}

#[tokio::test]
async fn a_call_of_the_second_provider_runs() {
    let call = Reply::new().call("nobody", serde_json::json!({}));
    let model = Fallback::new(failing_model(ErrorKind::Server)).or(Scripted::new([call]));
    assert!(request_turn(&model).await.unwrap().calls().veto().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_circuit_opens_after_the_configured_number_of_consecutive_failures() {
    let model = Scripted::new([
        Reply::error(error_of_kind(ErrorKind::Server)),
        Reply::text("fine"),
        Reply::error(error_of_kind(ErrorKind::Server)),
        // An error that is not the provider's fault: it changes nothing.
        Reply::error(error_of_kind(ErrorKind::InvalidRequest)),
        Reply::new().disconnect(),
    ]);
    let breaker = CircuitBreaker::new(model.clone()).with_max_failures(2);
    for _ in 0..4 {
        drop(request_turn(&breaker).await);
        assert!(!breaker.is_open());
    }
    drop(request_turn(&breaker).await);
    assert!(breaker.is_open());
    tokio::time::advance(Duration::from_secs(10)).await;
    let refused = request_turn(&breaker).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(20)));
    let last = refused.find_source::<Error>().unwrap();
    assert_eq!(last.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(model.requests().len(), 5, "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_error_reveals_nothing_of_the_turn_that_opened_it() {
    let model = Scripted::new([Reply::text("for somebody else").disconnect()]);
    let breaker = CircuitBreaker::new(model).with_max_failures(1);
    let cut = request_turn(&breaker).await.unwrap_err();
    assert_eq!(cut.find_source::<PartialTurn>().unwrap().text(), "for somebody else");
    let refused = request_turn(&breaker).await.unwrap_err();
    assert!(refused.find_source::<PartialTurn>().is_none());
    let last = refused.find_source::<Error>().unwrap();
    assert_eq!((last.kind(), last.message()), (cut.kind(), cut.message()));
    assert!(!format!("{refused:?}{breaker:?}").contains("somebody"));
}

/// A circuit breaker that was opened and is half-open now, and its script.
async fn half_open_breaker(replies: impl IntoIterator<Item = Reply>) -> (CircuitBreaker, Scripted) {
    let first = Reply::error(error_of_kind(ErrorKind::Server));
    let model = Scripted::new([first].into_iter().chain(replies));
    let breaker = CircuitBreaker::new(model.clone())
        .with_max_failures(1)
        .with_cooldown(Duration::from_secs(5));
    drop(request_turn(&breaker).await);
    assert!(breaker.is_open());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!breaker.is_open());
    (breaker, model)
}

#[tokio::test(start_paused = true)]
async fn one_successful_probe_closes_the_circuit() {
    let (breaker, model) = half_open_breaker(["fine".into(), "fine".into()]).await;
    let mut probe = breaker.stream_turn(user_request());
    assert!(matches!(probe.next().now_or_never(), Some(Some(Ok(_)))));
    let refused = request_turn(&breaker).await.unwrap_err();
    assert_eq!((refused.kind(), refused.retry_after()), (ErrorKind::Overloaded, None));
    assert_eq!(model.requests().len(), 2);
    assert!(probe.next().await.unwrap().is_ok());
    assert!(probe.next().await.is_none());
    assert_eq!(request_turn(&breaker).await.unwrap().text(), "fine");
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_reopens_the_circuit() {
    let (breaker, _) = half_open_breaker([Reply::text("half").disconnect()]).await;
    assert_eq!(request_turn(&breaker).await.unwrap_err().kind(), ErrorKind::IncompleteTurn);
    assert!(breaker.is_open());
    let refused = request_turn(&breaker).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(5)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_or_inconclusive_probe_lets_another_request_probe() {
    let odd = Reply::error(error_of_kind(ErrorKind::InvalidRequest));
    let (breaker, model) = half_open_breaker([Reply::new().hang(), odd, "fine".into()]).await;
    let mut probe = breaker.stream_turn(user_request());
    assert!(probe.next().now_or_never().is_none());
    assert!(breaker.is_open());
    drop(probe);
    assert_eq!(request_turn(&breaker).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(request_turn(&breaker).await.unwrap().text(), "fine");
    assert_eq!((model.requests().len(), model.in_flight()), (4, 0));
    // A stream that was never polled does not count as a trial.
    let _unasked = breaker.stream_turn(user_request());
    assert!(!breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_turn_started_before_the_circuit_opened_does_not_close_it() {
    let slow = Reply::text("late").delay(Duration::from_secs(1));
    let model = Scripted::new([slow, Reply::error(error_of_kind(ErrorKind::Server))]);
    let breaker = CircuitBreaker::new(model).with_max_failures(1);
    let mut early = breaker.stream_turn(user_request());
    assert!(early.next().await.unwrap().is_ok());
    drop(request_turn(&breaker).await);
    assert!(breaker.is_open());
    while let Some(event) = early.next().await {
        event.unwrap();
    }
    assert!(breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_the_breaker_waits_for_the_cooldown_and_becomes_the_probe() {
    let (first, then) = (Reply::error(error_of_kind(ErrorKind::Server)), Reply::text("fine"));
    let model = Scripted::new([first, then]);
    let breaker = CircuitBreaker::new(model.clone())
        .with_max_failures(1)
        .with_cooldown(Duration::from_micros(7_500_300));
    let backoff = Backoff { base_delay: Duration::ZERO, ..Backoff::default() };
    let turn = request_turn(&Retry::new(breaker).with_backoff(backoff)).await.unwrap();
    assert_eq!((turn.text().as_str(), model.requests().len()), ("fine", 2));
}

/// Every order of the four decorators, outermost last.
fn decorator_orders() -> Vec<Vec<char>> {
    let mut orders = vec![vec![]];
    for layer in ['r', 'f', 'c', 'w'] {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<char>| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, layer);
                    order
                })
            })
            .collect();
    }
    orders
}

fn wrap_in_layers(order: &[char], model: &Scripted) -> Arc<dyn Provider> {
    order.iter().fold(Arc::new(model.clone()), |provider: Arc<dyn Provider>, layer| match layer {
        'r' => Arc::new(Retry::new(provider).with_retraction()),
        'f' => Arc::new(Fallback::new(provider).or(answering_model("never asked"))),
        'c' => Arc::new(CircuitBreaker::new(provider)),
        _ => Arc::new(Record::to_writer(provider, std::io::sink())),
    })
}

#[tokio::test(start_paused = true)]
async fn layers_work_in_any_order_and_a_drop_at_every_poll_leaves_nothing_running() {
    let orders = decorator_orders();
    assert_eq!(orders.len(), 24);
    for order in orders {
        let world = || {
            let model = Scripted::new([
                Reply::text("so").call_raw("a", "t", "{}").call_raw("a", "t", "{\"x\":1}"),
                Reply::text("done"),
            ]);
            let ran = Arc::new(AtomicUsize::new(0));
            let count = ran.clone();
            let tool = Tool::raw(spec("t"), move |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
                async { "ran" }
            });
            let agent = Agent::new(wrap_in_layers(&order, &model)).with_tools([tool.unwrap()]);
            (agent.run_from(History::empty("h"), "go"), model, ran)
        };
        let (mut run, model, ran) = world();
        let mut events = Vec::new();
        while let Some(Some(event)) = run.next().now_or_never() {
            events.push(event.unwrap());
        }
        let outcome = events.last().unwrap().outcome().unwrap();
        assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "done"));
        assert_eq!((ran.load(Ordering::Relaxed), model.requests().len()), (2, 2), "{order:?}");
        for at in 0..events.len() {
            let (mut run, model, ran) = world();
            for _ in 0..at {
                run.next().now_or_never();
            }
            drop(run);
            let before = (model.requests().len(), ran.load(Ordering::Relaxed));
            assert_eq!(model.in_flight(), 0);
            tokio::time::advance(Duration::from_hours(1)).await;
            assert_eq!((model.requests().len(), ran.load(Ordering::Relaxed)), before);
        }
    }
}

#[cfg(feature = "http")]
#[tokio::test]
async fn provider_data_of_the_first_model_is_not_sent_to_the_second() {
    use turnstream::http::HttpClient;
    use turnstream::item::{ProviderData, RawJson};
    use turnstream::provider::Anthropic;
    use turnstream_testing::ModelServer;

    let down = ModelServer::anthropic(|_, _| {
        Reply::error(error_of_kind(ErrorKind::Overloaded).with_status(529))
    })
    .await
    .unwrap()
    .lenient();
    let up = ModelServer::anthropic(|_, _| "fine").await.unwrap();
    // The signature was not made by a model.
    let (down, up) = (down.lenient(), up.lenient());
    let at = |model: &str, server: &ModelServer| {
        let model = Anthropic::new(model).with_base_url(server.url()).unwrap();
        model.with_http_client(HttpClient::without_proxy())
    };
    let value = RawJson::parse(r#"{"signature":"c2ln"}"#).unwrap();
    let data = ProviderData { provider: "anthropic".into(), model: "a".into(), value };
    let thought = Item { provider_data: Some(data.into()), ..Item::reasoning("Hm.") };
    let items = [Item::user("hi"), thought, Item::text("hello"), Item::user("again")];
    let request = Request::new(History::from_items("h", items));
    let model = Fallback::new(at("a", &down)).or(at("b", &up));
    assert_eq!(model.stream_turn(request).into_turn().await.unwrap().text(), "fine");
    let (first, second) = (down.requests()[0].to_string(), up.requests()[0].to_string());
    assert!(first.contains("c2ln") && first.contains(r#""model":"a""#));
    assert!(!second.contains("c2ln") && second.contains(r#""model":"b""#));
}
