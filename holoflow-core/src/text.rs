//! The near match that an error message offers for a name nobody knows.

/// The name in `known` that is nearest to `found`, if one is near: at most a third of its
/// letters differ, whatever their case.
pub(crate) fn nearest<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let found = found.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&found, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= name.chars().count().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_name_is_offered_only_if_it_is_near() {
        let known = ["BatchQueue", "RateLimiter", "Copy"];
        assert_eq!(nearest("batchqueue", known), Some("BatchQueue"));
        assert_eq!(nearest("RateLimter", known), Some("RateLimiter"));
        assert_eq!(nearest("Fourier", known), None);
        assert_eq!(nearest("", known), None);
    }
}
