//! `route explain`: where a request would go, and why.

use crate::node::Node;
use serde_json::{Value, json};
use std::sync::Arc;

impl Node {
    /// Explains the placement of a chat or messages body; nothing is served.
    pub(crate) async fn explain(self: &Arc<Self>, body: Value) -> Result<Value, String> {
        let view = Arc::new(crate::cluster::View(self.clone()));
        let prompt = frontend::prompt_of(view, body).await?;
        let explanation = router::explain(
            &self.placement.index,
            &self.placement.loads,
            &self.query(&prompt, &[]),
            self.placement.policy,
            0,
            self.clock.now(),
        );
        let text = explanation.to_string();
        let mut value = serde_json::to_value(&explanation).map_err(|error| error.to_string())?;
        value["text"] = json!(text);
        Ok(value)
    }
}
