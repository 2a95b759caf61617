//! What a child process is told to do.

use std::collections::BTreeMap;

use crate::contestant::Name;

/// One contestant's part in one scenario, as it stands on a child's command line.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) scenario: &'static str,
    pub(crate) contestant: Name,
    pub(crate) url: String,
    settings: BTreeMap<String, u64>,
}

impl Job {
    pub(crate) fn new(scenario: &'static str, contestant: Name, url: &str) -> Self {
        Self { scenario, contestant, url: url.to_owned(), settings: BTreeMap::new() }
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: u64) -> Self {
        self.settings.insert(name.to_owned(), value);
        self
    }

    /// What the parent set; zero if it set nothing.
    pub(crate) fn setting(&self, name: &str) -> u64 {
        self.settings.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            JOB.to_owned(),
            self.scenario.to_owned(),
            self.contestant.text().to_owned(),
            self.url.clone(),
        ];
        arguments.extend(self.settings.iter().map(|(name, value)| format!("{name}={value}")));
        arguments
    }

    /// `None` for the command line of a user.
    pub(crate) fn from_arguments(arguments: &[String]) -> Option<Self> {
        let [first, scenario, contestant, url, settings @ ..] = arguments else { return None };
        if first != JOB {
            return None;
        }
        let settings = settings.iter().filter_map(|setting| {
            let (name, value) = setting.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Some(Self {
            scenario: crate::scenario::names().into_iter().find(|name| name == scenario)?,
            contestant: Name::ALL.into_iter().find(|name| name.text() == contestant)?,
            url: url.clone(),
            settings: settings.collect(),
        })
    }
}

const JOB: &str = "--job";
