//! A directory of its own for each test, with a configuration in it.

use std::fs;
use std::path::PathBuf;

use hapax_server::config::{self, Config, Explained, FlagValue, Sources};
use tempfile::TempDir;

/// A configuration that is being written.
pub(crate) struct Setup {
    pub(crate) directory: TempDir,
    pub(crate) sources: Sources,
}

/// A file with that text, and an upstream by flag.
pub(crate) fn file(text: &str) -> Setup {
    let mut setup = without_file();
    setup.sources.file = Some(setup.write("hapax.toml", text, 0o600));
    setup
}

/// No file, and an upstream by flag.
pub(crate) fn without_file() -> Setup {
    let setup = Setup { directory: tempfile::tempdir().unwrap(), sources: Sources::default() };
    setup.flag("--to", "upstream.to", "http://127.0.0.1:3000")
}

/// The only problem of a file.
pub(crate) fn problem(text: &str) -> String {
    let problems = file(text).problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.concat()
}

impl Setup {
    /// Writes a file into the directory.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn flag(mut self, flag: &'static str, key: &'static str, value: &str) -> Self {
        self.sources.flags.push(FlagValue { flag, key, value: value.to_owned() });
        self
    }

    pub(crate) fn without_flags(mut self) -> Self {
        self.sources.flags.clear();
        self
    }

    pub(crate) fn explain(&self) -> Explained {
        config::explain(&self.sources)
    }

    pub(crate) fn load(&self) -> Config {
        config::load(&self.sources).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// Every problem, without the name of the directory.
    pub(crate) fn problems(&self) -> Vec<String> {
        let errors = config::load(&self.sources).expect_err("the configuration is refused");
        let directory = format!("{}/", self.directory.path().display());
        errors.0.iter().map(|problem| problem.to_string().replace(&directory, "")).collect()
    }

    /// `value # origin` of a setting, without the name of the directory.
    pub(crate) fn told(&self, key: &str) -> String {
        let settings = self.explain().settings;
        let setting: Vec<_> = settings.into_iter().filter(|setting| setting.key == key).collect();
        let text = config::show(&setting, true);
        let line = text.lines().last().unwrap_or_default().split_once(" = ").unwrap_or_default().1;
        let directory = format!("{}/", self.directory.path().display());
        line.split_whitespace().collect::<Vec<_>>().join(" ").replace(&directory, "")
    }
}
