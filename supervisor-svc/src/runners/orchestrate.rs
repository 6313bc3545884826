//! Automatic turns of orchestrators: applies [`orchestration::due`] after each append and whenever the actor recomputes
//! its pending effects.

use prost::Message as _;
use supervisor_log::store::Content;
use troupe_proto::supervisor::v1 as pb;

use crate::{domain::{command::Command, content::preview, rules::orchestration}, engine::actor::Actor};

impl Actor {
    pub(super) fn keep_orchestrating(&mut self) {
        for thread in orchestration::due(&self.session) {
            let input = input().reference(preview(orchestration::AUTO_TURN));
            self.own.push_back(Command::AutoTurn { thread, input });
        }
    }
}

/// Returns the content that a command of the actor itself refers to.
pub(super) fn contents_of(command: &Command) -> Vec<Content> {
    if matches!(command, Command::AutoTurn { .. }) {
        vec![input()]
    } else {
        Vec::new()
    }
}

/// Returns the input of an automatic turn, encoded like every stored input.
fn input() -> Content {
    let text = pb::InputItem {
        item: Some(pb::input_item::Item::Text(orchestration::AUTO_TURN.to_owned())),
    };
    let input = pb::Input {
        items: vec![text],
        ..pb::Input::default()
    };
    Content::new(input.encode_to_vec().into())
}
