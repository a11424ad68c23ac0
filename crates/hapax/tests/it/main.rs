//! The layer and the background roles, used as a service uses them.

mod background;
mod claims;
mod common;
mod front_door;
mod late;
mod layer;
mod nested;
mod passing;
mod readme;
mod roles;
mod spans;
mod streams;
