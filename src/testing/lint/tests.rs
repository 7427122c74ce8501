//! What each lint finds, and what it lets pass.
