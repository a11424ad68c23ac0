//! The model of a disk by itself, on records made by hand.

use super::*;

fn line(call: &str) -> String {
    format!("100 {call}\n")
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
}

fn recording(dir: &Path, calls: &[String]) -> Recording {
    let trace = dir.with_extension("trace");
    std::fs::write(&trace, calls.iter().map(|call| line(call)).collect::<String>()).unwrap();
    let mut recording = Recording::default();
    recording.add(&trace, dir);
    std::fs::remove_file(trace).unwrap();
    recording
}

struct Calls {
    dir: tempfile::TempDir,
    calls: Vec<String>,
}

impl Calls {
    fn new() -> Calls {
        let dir = tempfile::tempdir().unwrap();
        let place = hex(dir.path().canonicalize().unwrap().join("a").to_str().unwrap());
        let parent = hex(dir.path().canonicalize().unwrap().to_str().unwrap());
        let calls = vec![
            format!("openat(AT_FDCWD<{parent}>, \"{place}\", O_RDWR|O_CREAT, 0600) = 3<{place}>"),
            format!("fsync(4<{parent}>) = 0"),
        ];
        Calls { dir, calls }
    }

    fn place(&self) -> String {
        hex(self.dir.path().canonicalize().unwrap().join("a").to_str().unwrap())
    }

    fn write(mut self, at: usize, text: &str) -> Calls {
        self.calls.push(format!(
            "pwrite64(3<{}>, \"{}\", {}, {at}) = {}",
            self.place(),
            hex(text),
            text.len(),
            text.len()
        ));
        self
    }

    fn sync(mut self, result: &str) -> Calls {
        self.calls.push(format!("fdatasync(3<{}>) = {result}", self.place()));
        self
    }

    /// What may be left of the file, over many images.
    fn left(&self, lie: Option<usize>) -> std::collections::BTreeSet<String> {
        let recording = recording(self.dir.path(), &self.calls);
        let image = |seed| recording.image(recording.len(), &mut Dice::new(seed), lie).files.remove("a").unwrap();
        (0..200).map(|seed| String::from_utf8(image(seed)).unwrap()).collect()
    }
}

const EIO: &str = "-1 EIO (Input/output error) (INJECTED)";

fn set(texts: &[&str]) -> std::collections::BTreeSet<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn what_is_synced_is_there_and_the_rest_may_be() {
    assert_eq!(Calls::new().write(0, "one").sync("0").left(None), set(&["one"]));
    let left = Calls::new().write(0, "one").sync("0").write(3, "two").left(None);
    assert_eq!(left, set(&["one", "onetwo", "one\0\0\0"]));
}

#[test]
fn after_a_failed_sync_a_later_one_writes_only_what_was_written_again() {
    let failed = Calls::new().write(0, "one").sync(EIO);
    let far = "x".repeat(10);
    let left = failed.write(8192, &far).sync("0").left(None);
    assert!(left.contains(&format!("{}{far}", "\0".repeat(8192))), "the first page is lost");
    let again = Calls::new().write(0, "one").sync(EIO).write(3, "two").sync("0");
    assert_eq!(again.left(None), set(&["onetwo"]), "its page was written to again, so it is there as a whole");
}

#[test]
fn a_sync_that_lies_covers_nothing() {
    // The directory's sync is the first.
    assert!(Calls::new().write(0, "one").sync("0").left(Some(2)).contains(""));
}

#[test]
fn a_call_on_two_lines_ends_where_it_ends() {
    let calls = Calls::new();
    let place = calls.place();
    let text = [
        format!("1 pwrite64(3<{place}>, \"{}\", 3, 7 <unfinished ...>", hex("one")),
        format!("2 fdatasync(3<{place}> <unfinished ...>"),
        "1 <... pwrite64 resumed>)       = 3".to_owned(),
        "2 <... fdatasync resumed>) = 0".to_owned(),
        format!("2 write(1<{}>, \"{}\", 12) = 12", hex("/dev/null"), hex("\n<said> done\n")),
    ];
    let trace = calls.dir.path().with_extension("trace");
    std::fs::write(&trace, text.join("\n")).unwrap();
    let mut recording = Recording::default();
    recording.add(&trace, calls.dir.path());
    std::fs::remove_file(trace).unwrap();
    assert_eq!(recording.image(recording.len(), &mut Dice::new(1), None).said, ["done"]);
    let written =
        recording.events.iter().any(|event| matches!(event, Event::Write { at: 7, data, .. } if data == b"one"));
    assert!(written, "{:?}", recording.events);
    assert_eq!(recording.synced_before_said("a"), [], "the write had not ended when the sync began");
}
