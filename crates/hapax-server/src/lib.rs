//! The parts of the binary `hapax`, as a library so that its tests can reach them.
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the commands and their flags |
//! | [`config`] | `hapax.toml`, the environment and the flags, made into one checked configuration |
//! | [`proxy`] | sockets, TLS and HTTP on both sides |
//! | [`scope`] | whose key it is |
//! | [`admin`] | the listener for operators: health and metrics |
//! | [`abuse`] | rates per caller, the most busy callers, the circuit breaker |
//! | [`operate`] | the operator's commands |
//! | [`desk`] | what operators can do, on the store or through a running node |
//! | [`run`] | starting, reloading, draining |
//! | `address_scheme` | how addresses are made, as the store remembers it |
//! | `places` | places for connections, and who goes when there are none left |
//! | `descriptors` | file descriptors: how many there are, and for whom |
//! | [`network`] | networks in CIDR notation: whose word is believed |
//! | [`logs`] | what is logged, and how |
//! | [`ledger`] | `hapax reconcile`: a provider's own records, compared |
//! | [`store_files`] | `hapax store`: backup, restore, fence |
//! | [`audit_routes`] | `hapax routes`: what is called without protection |

pub mod abuse;
mod address_scheme;
pub mod admin;
pub mod audit_routes;
pub mod cli;
pub mod config;
mod descriptors;
pub mod desk;
pub mod ledger;
pub mod logs;
pub mod network;
pub mod operate;
mod places;
pub mod proxy;
pub mod run;
pub mod scope;
pub mod store_files;
