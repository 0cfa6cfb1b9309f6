//! Dropping privileges.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use crate::outcome::os_result;

/// The user and group of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Looks up a user by name or number. `group` replaces the user's own group.
///
/// # Errors
/// There is no such user or group.
pub fn look_up_user(user: &str, group: Option<&str>) -> Result<User, String> {
    let found = match user.parse::<u32>() {
        Ok(uid) => User {
            uid,
            gid: group_of(uid).unwrap_or(uid),
        },
        Err(_) => user_named(user).ok_or_else(|| format!("user `{user}` does not exist"))?,
    };
    let Some(group) = group else {
        return Ok(found);
    };
    let gid = match group.parse::<u32>() {
        Ok(gid) => gid,
        Err(_) => group_named(group).ok_or_else(|| format!("group `{group}` does not exist"))?,
    };
    Ok(User { gid, ..found })
}

fn user_named(name: &str) -> Option<User> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero byte.
    let entry = unsafe { libc::getpwnam(name.as_ptr()) };
    // SAFETY: the result is null or valid until the next such call; it is copied at once, and this runs before
    // there is a second thread.
    unsafe { entry.as_ref() }.map(|entry| User {
        uid: entry.pw_uid,
        gid: entry.pw_gid,
    })
}

fn group_of(uid: u32) -> Option<u32> {
    // SAFETY: takes a number.
    let entry = unsafe { libc::getpwuid(uid) };
    // SAFETY: as in `user_named`.
    unsafe { entry.as_ref() }.map(|entry| entry.pw_gid)
}

fn group_named(name: &str) -> Option<u32> {
    let name: &CStr = &CString::new(name).ok()?;
    // SAFETY: the name ends with a zero byte.
    let entry = unsafe { libc::getgrnam(name.as_ptr()) };
    // SAFETY: as in `user_named`.
    unsafe { entry.as_ref() }.map(|entry| entry.gr_gid)
}

/// The privileges that a process keeps beyond those of its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptPrivileges {
    /// Nothing.
    Nothing,
    /// If it is root and stays root: bypassing file permissions, because sockets of backends belong to other
    /// users.
    FilesOfOthers,
    /// Reading all files that it could read before; the programs that it executes as well.
    ReadingFiles,
    /// Taking TCP connections out of the kernel and putting them back, on any port.
    TcpRepair,
    /// If it is root and stays root: all current privileges.
    Everything,
}

/// Switches to `user` permanently, without supplementary groups. For every user, drops all capabilities except
/// those of `kept`, and sets no_new_privs, so that no executed program gains privileges: not even root gets a
/// capability back. Call it before there is a second thread.
///
/// # Errors
/// The operating system's error; only a privileged process can switch users.
pub fn drop_privileges(user: Option<User>, kept: KeptPrivileges) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    // A change of the user drops all capabilities but those of a process that says this.
    rustix::thread::set_keep_capabilities(kept == KeptPrivileges::TcpRepair)?;
    if let Some(user) = user {
        become_user(user)?;
    }
    let is_root = rustix::process::geteuid().is_root();
    let permitted = rustix::thread::capabilities(None)?.permitted;
    let left = match kept {
        KeptPrivileges::Everything if is_root => return Ok(()),
        KeptPrivileges::FilesOfOthers if is_root => permitted & CapabilitySet::DAC_OVERRIDE,
        KeptPrivileges::ReadingFiles if permitted.contains(CapabilitySet::DAC_READ_SEARCH) => {
            CapabilitySet::DAC_READ_SEARCH
        }
        KeptPrivileges::TcpRepair => {
            permitted & (CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE)
        }
        // A container may lack the other one.
        KeptPrivileges::ReadingFiles => permitted & CapabilitySet::DAC_OVERRIDE,
        KeptPrivileges::Everything | KeptPrivileges::FilesOfOthers | KeptPrivileges::Nothing => {
            CapabilitySet::empty()
        }
    };
    // A capability that is not permitted and inheritable cannot be ambient.
    let sets = CapabilitySets {
        effective: left,
        permitted: left,
        inheritable: match kept {
            KeptPrivileges::ReadingFiles => left,
            _ => CapabilitySet::empty(),
        },
    };
    set_capabilities(None, sets)?;
    if kept == KeptPrivileges::ReadingFiles && !is_root && !left.is_empty() {
        rustix::thread::configure_capability_in_ambient_set(left, true)?;
    }
    Ok(())
}

/// Whether this process can become `user`. A container may run as root without that privilege, or without other
/// users.
pub fn can_become(user: User) -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let held = rustix::thread::capabilities(None);
    let is_mapped = |map: &str, id: u32| {
        let map = std::fs::read_to_string(map).unwrap_or_default();
        map.lines().any(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let first = numbers.next().and_then(Result::ok);
            let count = numbers.nth(1).and_then(Result::ok);
            let range = first.zip(count).map(|(first, count)| first..first + count);
            range.is_some_and(|range| range.contains(&u64::from(id)))
        })
    };
    held.is_ok_and(|held| held.effective.contains(needed))
        && is_mapped("/proc/self/uid_map", user.uid)
        && is_mapped("/proc/self/gid_map", user.gid)
}

/// Makes a command start with [`drop_privileges`]: as `user`, and without a way to gain privileges.
/// As a given user it also has a session of its own: whoever controls that user could type into this program's terminal.
pub fn confined(command: &mut Command, user: Option<User>) -> &mut Command {
    // SAFETY: before its exec the child makes only system calls; it takes no lock, and allocates only for an
    // error that ends it.
    unsafe {
        command.pre_exec(move || {
            if user.is_some() {
                rustix::process::setsid()?;
            }
            drop_privileges(user, KeptPrivileges::Everything)
        })
    }
}

fn become_user(User { uid, gid }: User) -> io::Result<()> {
    let (now, group_now) = (rustix::process::geteuid(), rustix::process::getegid());
    if now.as_raw() == uid && group_now.as_raw() == gid {
        return Ok(());
    }
    // SAFETY: an empty list is not read.
    os_result(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: takes numbers.
    os_result(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: takes numbers. Dropping root also clears the capabilities.
    os_result(unsafe { libc::setresuid(uid, uid, uid) })?;
    // SAFETY: takes numbers. Checks that dropped privileges cannot be regained.
    if uid != 0 && unsafe { libc::setresuid(0, 0, 0) } == 0 {
        return Err(io::Error::other("dropped privileges can be regained"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = User { uid: 0, gid: 0 };
        assert_eq!(look_up_user("root", None), Ok(root));
        assert_eq!(look_up_user("0", None), Ok(root));
        let with_group = look_up_user("root", Some("7")).unwrap();
        assert_eq!(with_group, User { uid: 0, gid: 7 });
        assert!(look_up_user("nobody-of-this-name", None).is_err());
        assert!(look_up_user("root", Some("no-group-of-this-name")).is_err());
    }
}
