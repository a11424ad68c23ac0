//! How much memory requests may take: what is configured, and no more than half of what this process can have.
//!
//! A budget that the machine or the container does not have protects nobody: the system would kill the process first, with
//! everything that runs in it. The other half is for what is not in the budget: connections, the store's caches, pages that
//! the allocator keeps.

use std::path::{Path, PathBuf};

use crate::config::Config;

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
