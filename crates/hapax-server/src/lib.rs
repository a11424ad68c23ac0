//! The parts of the binary `hapax`, as a library so that its tests can reach them.
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the commands and their flags |
//! | [`flags`] | flags that several commands have |
//! | [`config`] | `hapax.toml`, the environment and the flags, made into one checked configuration |
//! | [`scope`] | whose key it is |
//! | [`admin`] | the listener for operators: health and metrics |
//! | [`abuse`] | rates per caller, the most busy callers, the circuit breaker |
//! | [`operate`] | the operator's commands |
//! | [`desk`] | what operators can do, on the store or through a running node |
//! | [`run`] | starting, reloading, draining |
//! | [`store`] | the store that the configuration names: opened, measured, watched; how its keys are addressed |
//! | [`telemetry`] | the list of metrics, and their exporter |
//! | [`timestamp`] | timestamps as people write them |
//! | [`logs`] | what is logged, and how |
//! | [`ledger`] | `hapax reconcile`: a provider's own records, compared |
//! | [`store_files`] | `hapax store`: backup, restore, fence |
//! | [`audit_routes`] | `hapax routes`: what is called without protection |

pub mod abuse;
pub mod admin;
pub mod audit_routes;
pub mod cli;
pub mod config;
pub mod desk;
pub mod flags;
pub mod ledger;
pub mod logs;
pub mod operate;
pub mod run;
pub mod scope;
pub mod store;
pub mod store_files;
pub mod telemetry;
pub mod timestamp;
