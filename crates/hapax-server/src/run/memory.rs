//! How much memory requests may take, and how many there may be: what is configured, and no more than half of what this
//! process can have each.
//!
//! A limit that the machine or the container does not have room for protects nobody: the system would kill the process
//! first, with everything that runs in it. Bodies and responses are in the budget. A request under way takes memory beside
//! it (buffers of two connections, header fields, tasks), so how many there may be is a limit of memory as well.

use std::path::{Path, PathBuf};

use crate::config::{Config, Server};

/// What a request under way takes beside its body and its header fields, as measured, rounded up: 86 kB for a claimed one.
const REQUEST_BYTES: usize = 96 * 1024;
/// How many times its header fields are in memory: as read and as parsed, and written for the upstream, in buffers that have
/// grown by doubling.
const HEADER_COPIES: usize = 4;
/// However little memory there is.
const PLACES_LEAST: usize = 16;

/// The budget in bytes.
pub(super) fn budget(config: &Config) -> usize {
    let wanted = config.server.memory_max;
    let Some(available) = available() else { return wanted };
    let most = (available / 2).max(config.memory_needed());
    if wanted > most {
        tracing::info!(
            memory_max = most,
            available,
            "`server.memory_max` is lowered to half of the memory that this machine or container has"
        );
    }
    wanted.min(most)
}

/// As many connections as are configured and there is memory for; a line in the log says where it is not enough for all.
pub(super) fn connections(server: &Server) -> usize {
    let configured = server.connections_max.get() as usize;
    let fewer = places(configured, server);
    if fewer < configured {
        tracing::info!(
            connections_max = fewer,
            "`server.connections_max` is lowered: half of the memory that this machine or container has is enough for so \
             many requests at a time"
        );
    }
    fewer
}

/// As many of these connections, or attempts, as there is memory for. At least a few: with less nothing can be served.
pub(super) fn places(configured: usize, server: &Server) -> usize {
    available().map_or(configured, |available| configured.min(places_in(available, server.header_bytes_max)))
}

fn places_in(available: usize, header_bytes_max: usize) -> usize {
    let each = REQUEST_BYTES.saturating_add(header_bytes_max.saturating_mul(HEADER_COPIES));
    (available / 2 / each).max(PLACES_LEAST)
}

/// Bytes that this process can have: those of the machine, or fewer where its control group has a limit. None where the
/// system does not tell.
fn available() -> Option<usize> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| std::fs::read_to_string(file).ok());
    limits.filter_map(|text| text.trim().parse().ok()).chain(machine).min()
}

/// `MemTotal:       16384256 kB`
fn total(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Where the limits of the groups and of those above them stand. A file that says `max` is no limit.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(path.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       16384256 kB\n"), Some(16_384_256 * 1024));
        assert_eq!((total("MemTotal: much"), total("")), (None, None));
        assert!(available().is_none_or(|bytes| bytes > 1024 * 1024));
    }

    #[test]
    fn there_are_no_more_places_than_memory_for_them() {
        const MIB: usize = 1024 * 1024;
        assert_eq!(places_in(512 * MIB, 32 * 1024), 1170);
        assert_eq!(places_in(4096 * MIB, 32 * 1024), 9362);
        assert_eq!(places_in(MIB, 32 * 1024), PLACES_LEAST);
        assert_eq!(places_in(512 * MIB, usize::MAX), PLACES_LEAST);
        let server = Server::default();
        assert!((PLACES_LEAST..=10_000).contains(&places(10_000, &server)));
        assert_eq!(places(3, &server), 3, "what is configured is not raised");
    }

    #[test]
    fn every_group_above_may_have_the_limit() {
        let files =
            |text: &str| -> Vec<String> { limit_files(text).iter().map(|file| file.display().to_string()).collect() };
        assert_eq!(
            files("0::/system.slice/hapax.service\n"),
            [
                "/sys/fs/cgroup/system.slice/hapax.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files("5:cpu,memory:/docker\n4:pids:/docker\nnonsense\n"),
            ["/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
    }
}
