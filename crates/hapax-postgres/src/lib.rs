//! hapax-postgres
