//! The scripts, and how they are called.

use std::sync::LazyLock;

use redis::{Arg, Cmd};

/// A script, known to a server by its hash once it was loaded or sent in full.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: LazyLock<String>,
}

macro_rules! script {
    ($name:ident = $file:literal) => {
        pub(super) static $name: Script = Script {
            text: include_str!($file),
            hash: LazyLock::new(|| redis::Script::new(include_str!($file)).get_hash().to_owned()),
        };
    };
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(script! { $name = $file })*

        pub(super) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    ACQUIRE = "lua/acquire.lua";
    CONTEND = "lua/contend.lua";
    DRAW = "lua/draw.lua";
    INSPECT = "lua/inspect.lua";
    RAISE = "lua/raise.lua";
    RELEASE = "lua/release.lua";
    RENEW = "lua/renew.lua";
    WAKE = "lua/wake.lua";
}

// Not loaded beforehand: none of them minds its turn among the requests.
#[cfg(feature = "cluster")]
script! { RELEASE_ALONE = "lua/release_alone.lua" }
#[cfg(feature = "cluster")]
script! { RENEW_TOGETHER = "lua/renew_together.lua" }

impl Script {
    /// Starts a call by hash; `keys` keys and the script's arguments are to follow.
    pub(super) fn call(&self, keys: usize) -> Cmd {
        let mut command = Cmd::with_capacity(CALL_ARGS, CALL_BYTES);
        command.arg("EVALSHA").arg(self.hash.as_str()).arg(keys);
        command
    }

    /// The same call with the text of the script, for a server that does not know the hash.
    pub(super) fn call_in_full(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.text);
        for arg in call.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        command
    }

    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }
}

// Enough for a release, the call that must be quick.
const CALL_ARGS: usize = 9;
const CALL_BYTES: usize = 384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_begins_with_its_keys_arguments_and_returns() {
        let all = ALL.iter().copied();
        #[cfg(feature = "cluster")]
        let all = all.chain([&RELEASE_ALONE, &RENEW_TOGETHER]);
        for script in all {
            let header: String =
                script.text.lines().take_while(|line| line.starts_with("--")).collect();
            for part in ["KEYS[", "Returns"] {
                assert!(header.contains(part), "{part} is missing in {header}");
            }
            assert_eq!(script.text.contains("ARGV["), header.contains("ARGV["), "{header}");
        }
    }

    #[test]
    fn a_call_in_full_carries_the_same_keys_and_arguments() {
        let mut call = RENEW.call(1);
        call.arg("key").arg("owner").arg(10_000);
        let mut expected = redis::cmd("EVAL");
        expected.arg(RENEW.text).arg(1).arg("key").arg("owner").arg(10_000);
        assert_eq!(RENEW.call_in_full(&call).get_packed_command(), expected.get_packed_command());
    }
}
