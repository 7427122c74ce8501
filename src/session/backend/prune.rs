//! Selects the sessions to prune.

use std::collections::HashMap;
use std::time::SystemTime;

use crate::session::SessionInfo;

/// Returns the ids of the sessions that were last written to before the given time. A fork is
/// listed before its original session. If a fork is kept, its original session is not included.
/// Sessions that cannot be read are kept.
pub fn prunable_ids(sessions: &[SessionInfo], before: SystemTime) -> Vec<&str> {
    let by_id: HashMap<&str, &SessionInfo> = sessions.iter().map(|it| (&*it.id, it)).collect();
    let origin = |session: &SessionInfo| {
        session.origin.as_ref().and_then(|fork| by_id.get(&*fork.id)).copied()
    };
    let mut forks: HashMap<&str, usize> = HashMap::new();
    for origin in sessions.iter().filter_map(origin) {
        *forks.entry(&origin.id).or_default() += 1;
    }
    let mut removed = Vec::new();
    for session in sessions {
        let mut next = Some(session).filter(|session| !forks.contains_key(&*session.id));
        // The loop visits the session itself, and then its original session if this was the
        // original's last fork.
        let is_removed =
            |session: &&SessionInfo| session.updated_at < before && session.read_error.is_none();
        while let Some(session) = next.filter(is_removed) {
            removed.push(&*session.id);
            next = origin(session).filter(|origin| match forks.get_mut(&*origin.id) {
                Some(others) => {
                    *others -= 1;
                    *others == 0
                }
                None => false,
            });
        }
    }
    removed
}
