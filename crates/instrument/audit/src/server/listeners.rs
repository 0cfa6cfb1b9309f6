//! The processes of a server that hold its listening socket: helpers beside them may be other software.

use dormouse_measure::ProcessInfo;
use dormouse_measure::sockets;
use dormouse_reactor::socket::Addr;

/// Returns the processes that hold a socket that listens on the target's port; all of them if there is none, as for a
/// server behind a unix socket.
pub(super) fn among(processes: &[ProcessInfo], target: &Addr) -> Vec<ProcessInfo> {
    let (Addr::Tcp(address), Some(first)) = (target, processes.first()) else {
        return processes.to_vec();
    };
    let listening = sockets::listening(first.pid, address.port());
    let inodes: Vec<_> = listening.into_iter().map(|socket| socket.inode).collect();
    let holds = |process: &&ProcessInfo| sockets::holds_any(process.pid, &inodes);
    let found: Vec<_> = processes.iter().filter(holds).cloned().collect();
    if found.is_empty() {
        processes.to_vec()
    } else {
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Recorded: a server with a helper in Perl was called a program in Perl.
    #[test]
    fn a_helper_is_not_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Addr::Tcp(listener.local_addr().unwrap());
        let process = |pid: u32, command: &str| ProcessInfo {
            pid: i32::try_from(pid).unwrap(),
            command: command.into(),
        };
        let mut helper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let all = [
            process(std::process::id(), "server"),
            process(helper.id(), "helper"),
        ];
        let found = among(&all, &address);
        drop(listener);
        let without = among(&all, &address);
        helper.kill().unwrap();
        helper.wait().unwrap();
        assert_eq!(found, all[..1]);
        assert_eq!(without, all);
    }
}
