//! Near matches for many wrong names, in bounded time.

/// Comparisons of names that one document is worth.
const BUDGET: usize = 1 << 16;

/// Looks for near matches until it has compared enough names: a large document in which
/// everything is misspelt must not take a time that is quadratic in its size.
#[derive(Debug)]
pub(crate) struct Near {
    left: usize,
}

impl Near {
    pub(crate) fn new() -> Self {
        Self { left: BUDGET }
    }

    /// The name in `known` that is nearest to `found`, if one is near.
    pub(crate) fn find<'n>(
        &mut self,
        found: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Option<String> {
        let Self { left } = self;
        let known = known.into_iter().take_while(|_| {
            *left = left.saturating_sub(1);
            *left > 0
        });
        crate::text::nearest(found, known).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_matches_end_when_enough_names_were_compared() {
        let mut near = Near::new();
        assert_eq!(near.find("ftt", ["fft"]).as_deref(), Some("fft"));
        let many: Vec<_> = (0..BUDGET).map(|n| n.to_string()).collect();
        near.find("x", many.iter().map(String::as_str));
        assert_eq!(near.find("ftt", ["fft"]), None);
    }
}
