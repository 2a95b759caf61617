//! "Did you mean": the known word that a wrong one is nearest to.

/// Finds the candidate that `word` most likely is a misspelling of.
///
/// ```
/// use distlock_template::nearest;
///
/// assert_eq!(nearest("leese", ["wait", "lease", "max_hold"]), Some("lease"));
/// assert_eq!(nearest("colour", ["wait", "lease", "max_hold"]), None);
/// ```
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let fold = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let folded = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3).min(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (i, a) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, &other) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(a != other);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if j > 0 && previous == Some(other) && a == b[j - 1] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
        previous = Some(a);
    }
    last[b.len()]
}
