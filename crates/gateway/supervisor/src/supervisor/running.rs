//! Orders that change the running configuration without its files. A change lasts until the next reload,
//! which reads the files again, unless it is kept; crashes of workers and upgrades keep it.

use super::Supervisor;
use crate::ctl::change;
use crate::reload::report::Cause;
use dormouse_handover::control::RunningChange;

impl Supervisor {
    /// Changes the running configuration. The answer is sent when all workers follow it.
    pub(super) fn change(&mut self, id: u64, change: &RunningChange, is_kept: bool) {
        match self.try_change(change, is_kept) {
            Ok(words) => {
                tracing::info!(change = words, "configuration changed by an admin command");
                self.reload.wait(Cause::Order, vec![id], words);
                self.finish_reload_if_complete();
            }
            Err(why) => self.answer(id, Err(why)),
        }
    }

    fn try_change(&mut self, change: &RunningChange, is_kept: bool) -> Result<String, String> {
        if let Some(why) = self.refusal_of_change() {
            return Err(why);
        }
        let edition = &self.serving.edition;
        let before = edition.config.clone();
        let mut kept = self.history.kept.clone();
        let has_changed = kept.note(change, is_kept, &before)?;
        let mut config = before.clone();
        let words = match change::apply(&mut config, change) {
            Ok(words) => words,
            // The file does not have this backend any more.
            Err(why) if has_changed && !is_kept && !change::is_known(&before, change) => {
                kept.save()?;
                self.history.kept = kept;
                return Ok(format!(
                    "`{change}` is no longer kept, and changes nothing: {why}"
                ));
            }
            Err(why) => return Err(why),
        };
        let material = edition.material.clone();
        self.serving
            .apply(config, material, self.drain.is_under_way())?;
        let after = &self.serving.edition.config;
        self.history.ctl_changes.note(&before, after);
        (self.set_logs)(&after.log);
        self.follow_edition();
        if has_changed {
            let saved = kept.save();
            saved.map_err(|why| format!("until the next reload, {words}; but {why}"))?;
            self.history.kept = kept;
        }
        Ok(match is_kept {
            true => format!("also after a reload and a restart, {words}"),
            false => format!("until the next reload, {words}"),
        })
    }
}
