//! For tasks without settings: so that one they do not have is an error, and not ignored.

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoSettings {}
