//! Automatic turns of orchestrators: applies [`orchestration::due`] after each append and whenever pending work is
//! recomputed.

use prost::Message as _;
use supervisor_log::store::Content;
use troupe_proto::supervisor::v1 as pb;

use crate::{
    domain::{command::Command, content::preview, rules::orchestration, state::session::Session},
    engine::feed::Commands,
};

/// Issues the automatic turns that are due.
pub(super) fn request_auto_turns(session: &Session, commands: &mut Commands) {
    for thread in orchestration::due(session) {
        let content = input();
        let input = content.reference(preview(orchestration::AUTO_TURN));
        commands.push_with(Command::AutoTurn { thread, input }, vec![content]);
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
