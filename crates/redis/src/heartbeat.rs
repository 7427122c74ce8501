//! Sends this process's heartbeats.

use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval};
use turnstream::Error;
use turnstream::hub::LogUnavailable;

use crate::directory::end_again;
use crate::log::restore;
use crate::mirror::{Mirror, OwnAttempt, parse_id};
use crate::shared_state::SharedState;

/// Sends heartbeats for this process, and restores the data of the process's runs if the server has
/// lost the data.
pub(crate) async fn beat_for_ever(shared: Arc<SharedState>) {
    let mut ticks = interval(shared.settings.beat());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A failed operation is retried at the next heartbeat.
        let _ = beat(&shared).await;
    }
}

/// A run for which this process sends heartbeats, with the process's own attempt and inbox, if any.
struct Sign {
    run: String,
    own: Option<(OwnAttempt, Arc<Mirror>)>,
    inbox: Option<String>,
}

async fn beat(shared: &SharedState) -> Result<(), Error> {
    let signs = signs(shared);
    for some in signs.chunks(256) {
        match beat_some(shared, some).await {
            Ok(()) => {}
            Err(error) if error.find_source::<LogUnavailable>().is_some() => return Err(error),
            // Another program changed the keys of one run, so the heartbeats are sent separately.
            Err(_) => {
                for sign in some {
                    let _ = beat_some(shared, std::slice::from_ref(sign)).await;
                }
            }
        }
    }
    end_again(shared).await;
    announce_again(shared).await
}

async fn beat_some(shared: &SharedState, some: &[Sign]) -> Result<(), Error> {
    let (keys, settings) = (&shared.keys, &shared.settings);
    let mut pipeline = redis::pipe();
    pipeline.load_script(&shared.scripts.beat).ignore();
    for Sign { run, own, inbox } in some {
        let mut script = shared.scripts.beat.prepare_invoke();
        script.key(keys.owner(run)).key(keys.log(run)).key(keys.alive(run));
        script.key(keys.open(run)).key(keys.inbox(run));
        script.arg(own.as_ref().map_or("", |(own, _)| &own.owner)).arg(&shared.process);
        script.arg(settings.lease_ms()).arg(settings.expiry_ms());
        script.arg(inbox.as_deref().unwrap_or(""));
        pipeline.invoke_script(&script);
    }
    let answers: Vec<(String, String)> = shared.connection.pipeline(&pipeline).await?;
    for (sign, (status, last)) in some.iter().zip(answers) {
        let (Some((own, mirror)), "ok") = (&sign.own, status.as_str()) else { continue };
        let last = parse_id(&last).unwrap_or_default();
        if mirror.log.last_position().is_some_and(|here| here > last) {
            restore(shared, mirror, own, last).await?;
        }
    }
    Ok(())
}

fn signs(shared: &SharedState) -> Vec<Sign> {
    let state = shared.state();
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

async fn announce_again(shared: &SharedState) -> Result<(), Error> {
    let announced = shared.state().announced.clone();
    if announced.is_empty() {
        return Ok(());
    }
    let mut pipeline = redis::pipe();
    pipeline.load_script(&shared.scripts.announce_again).ignore();
    for (run, here) in &announced {
        let mut script = shared.scripts.announce_again.prepare_invoke();
        script.key(shared.keys.runs(&here.key)).key(shared.keys.active());
        script.arg(run).arg(&here.key).arg(here.order).arg(shared.settings.expiry_ms());
        pipeline.invoke_script(&script);
    }
    let _: Vec<i64> = shared.connection.pipeline(&pipeline).await?;
    Ok(())
}
