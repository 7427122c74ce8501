//! Sends this process's heartbeats.

use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval};
use turnstream::Error;
use turnstream::hub::LogUnavailable;

use crate::directory::end_again;
use crate::inner::Inner;
use crate::log::restore;
use crate::mirror::{Mirror, OwnAttempt, parse_id};

/// Sends heartbeats for this process, and restores the data of the process's runs if the server has
/// lost the data.
pub(crate) async fn beat_for_ever(inner: Arc<Inner>) {
    let mut ticks = interval(inner.settings.beat());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A failed operation is retried at the next heartbeat.
        let _ = beat(&inner).await;
    }
}

/// A run for which this process sends heartbeats, with the process's own attempt and inbox, if any.
struct Sign {
    run: String,
    own: Option<(OwnAttempt, Arc<Mirror>)>,
    inbox: Option<String>,
}

async fn beat(inner: &Inner) -> Result<(), Error> {
    let signs = signs(inner);
    for some in signs.chunks(256) {
        match beat_some(inner, some).await {
            Ok(()) => {}
            Err(error) if error.find_source::<LogUnavailable>().is_some() => return Err(error),
            // Another program changed the keys of one run, so the heartbeats are sent separately.
            Err(_) => {
                for sign in some {
                    let _ = beat_some(inner, std::slice::from_ref(sign)).await;
                }
            }
        }
    }
    end_again(inner).await;
    announce_again(inner).await
}

async fn beat_some(inner: &Inner, some: &[Sign]) -> Result<(), Error> {
    let (keys, settings) = (&inner.keys, &inner.settings);
    let mut pipeline = redis::pipe();
    pipeline.load_script(&inner.scripts.beat).ignore();
    for Sign { run, own, inbox } in some {
        let mut script = inner.scripts.beat.prepare_invoke();
        script.key(keys.owner(run)).key(keys.log(run)).key(keys.alive(run));
        script.key(keys.open(run)).key(keys.inbox(run));
        script.arg(own.as_ref().map_or("", |(own, _)| &own.owner)).arg(&inner.process);
        script.arg(settings.lease_ms()).arg(settings.expiry_ms());
        script.arg(inbox.as_deref().unwrap_or(""));
        pipeline.invoke_script(&script);
    }
    let answers: Vec<(String, String)> = inner.connection.pipeline(&pipeline).await?;
    for (sign, (status, last)) in some.iter().zip(answers) {
        let (Some((own, mirror)), "ok") = (&sign.own, status.as_str()) else { continue };
        let last = parse_id(&last).unwrap_or_default();
        if mirror.log.last_position().is_some_and(|here| here > last) {
            restore(inner, mirror, own, last).await?;
        }
    }
    Ok(())
}

fn signs(inner: &Inner) -> Vec<Sign> {
    let state = inner.state();
    let own = |run: &str| {
        let mirror = state.mirrors.get(run)?;
        // A run that has ended needs no heartbeat.
        let own = mirror.own_attempt().filter(|_| !mirror.log.has_ended())?;
        Some((own, Arc::clone(mirror)))
    };
    let mut runs: Vec<&String> = state.mirrors.keys().chain(state.inboxes.keys()).collect();
    runs.sort_unstable();
    runs.dedup();
    let signs = runs.into_iter().map(|run| Sign {
        run: run.clone(),
        own: own(run),
        inbox: state.inboxes.get(run).cloned(),
    });
    signs.filter(|sign| sign.own.is_some() || sign.inbox.is_some()).collect()
}

async fn announce_again(inner: &Inner) -> Result<(), Error> {
    let announced = inner.state().announced.clone();
    if announced.is_empty() {
        return Ok(());
    }
    let mut pipeline = redis::pipe();
    pipeline.load_script(&inner.scripts.announce_again).ignore();
    for (run, here) in &announced {
        let mut script = inner.scripts.announce_again.prepare_invoke();
        script.key(inner.keys.runs(&here.key)).key(inner.keys.active());
        script.arg(run).arg(&here.key).arg(here.order).arg(inner.settings.expiry_ms());
        pipeline.invoke_script(&script);
    }
    let _: Vec<i64> = inner.connection.pipeline(&pipeline).await?;
    Ok(())
}
