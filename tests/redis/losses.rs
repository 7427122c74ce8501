//! What is lost when Redis is.
