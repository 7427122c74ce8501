//! A change of the grants of a run.

use crate::item::Grant;

/// A change of the grants of a run or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantChange {
    /// A call was approved with this grant.
    Added(Box<Grant>),
    /// A grant was revoked.
    Revoked {
        /// The id of the grant.
        grant_id: String,
    },
}

impl GrantChange {
    /// Applies the change to a list of grants. A grant whose id is already in the list is not added
    /// again.
    ///
    /// ```
    /// use turnstream::event::GrantChange;
    ///
    /// let mut grants = Vec::new();
    /// let json = r#"{"v":1,"id":"a1","tool":"rm","definition":"…","scope":"any_arguments",
    ///     "duration":"until_revoked"}"#;
    /// GrantChange::Added(serde_json::from_str(json)?).apply_to(&mut grants);
    /// assert_eq!(grants[0].tool, "rm");
    /// GrantChange::Revoked { grant_id: "a1".to_owned() }.apply_to(&mut grants);
    /// assert!(grants.is_empty());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn apply_to(self, grants: &mut Vec<Grant>) {
        match self {
            Self::Added(grant) => {
                if grants.iter().all(|known| known.id != grant.id) {
                    grants.push(*grant);
                }
            }
            Self::Revoked { grant_id } => grants.retain(|known| known.id != grant_id),
        }
    }
}
