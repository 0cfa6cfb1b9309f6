//! Network namespaces: two machines with a cable between them, which can be cut.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::tools;

/// Two namespaces, `near` for the terminator and its backend, and `far` for clients. Dropping this removes
/// them.
pub struct Cable {
    near: String,
    far: String,
}

/// The near end's address.
pub const NEAR: &str = "10.98.0.1";

impl Cable {
    /// Creates the cable. `None`: not possible here, and reported.
    ///
    /// # Panics
    /// As [`tools::unavailable`].
    pub fn lay() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !tools::present(&["ip"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            tools::unavailable("network namespaces need root");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("dm-{}-{number}-{end}", std::process::id());
        let cable = Self {
            near: name("near"),
            far: name("far"),
        };
        if let Err(error) = cable.build() {
            tools::unavailable(&format!("network namespaces cannot be made: {error}"));
            return None;
        }
        Some(cable)
    }

    fn build(&self) -> Result<(), String> {
        let (near, far) = (&self.near, &self.far);
        ip(&format!("netns add {near}"))?;
        ip(&format!("netns add {far}"))?;
        ip(&format!(
            "-n {near} link add cable type veth peer name cable netns {far}"
        ))?;
        ip(&format!("-n {near} addr add {NEAR}/24 dev cable"))?;
        ip(&format!("-n {far} addr add 10.98.0.2/24 dev cable"))?;
        for end in [near, far] {
            ip(&format!("-n {end} link set lo up"))?;
            ip(&format!("-n {end} link set cable up"))?;
        }
        Ok(())
    }

    /// Cuts the cable: from now on packets are lost silently.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self) {
        ip(&format!("-n {} link set cable down", self.far)).expect("a link that can be set down");
    }

    /// The name of the near end's namespace.
    pub fn near(&self) -> String {
        self.near.clone()
    }

    /// Runs a closure at the near end; sockets that it opens stay there.
    ///
    /// # Panics
    /// When the closure panics.
    pub fn at_near<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        inside(&self.near, run)
    }

    /// Runs a closure at the far end.
    ///
    /// # Panics
    /// When the closure panics.
    pub fn at_far<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        inside(&self.far, run)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for end in [&self.near, &self.far] {
            // A namespace that does not exist needs no removal.
            let _ = ip(&format!("netns del {end}"));
        }
    }
}

/// A namespace with only itself inside: every address of 127.0.0.0/8 is free. Dropping this removes it.
pub struct Room {
    name: String,
}

impl Room {
    /// Creates the namespace. `None`: not possible here, and reported.
    ///
    /// # Panics
    /// As [`tools::unavailable`].
    pub fn make() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !tools::present(&["ip"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            tools::unavailable("network namespaces need root");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let room = Self {
            name: format!("dm-{}-{number}-room", std::process::id()),
        };
        let name = &room.name;
        let built = ip(&format!("netns add {name}"));
        if let Err(error) = built.and_then(|()| ip(&format!("-n {name} link set lo up"))) {
            tools::unavailable(&format!("network namespaces cannot be made: {error}"));
            return None;
        }
        Some(room)
    }

    /// The namespace's name.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns a command that runs inside.
    pub fn command(&self, words: &[String]) -> Vec<String> {
        [entering(&self.name), words.to_vec()].concat()
    }

    /// Runs a closure inside.
    ///
    /// # Panics
    /// As [`inside`].
    pub fn run<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        inside(&self.name, run)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // A namespace that does not exist needs no removal.
        let _ = ip(&format!("netns del {}", self.name));
    }
}

/// The command prefix that enters a namespace.
pub(crate) fn entering(namespace: &str) -> Vec<String> {
    let words = [&tools::path("ip"), "netns", "exec", namespace];
    words.map(str::to_owned).to_vec()
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new(tools::path("ip"))
        .args(arguments.split(' '))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("ip {arguments}: {}", said.trim()))
    }
}

/// Runs a closure inside a namespace, in a thread of its own, because a namespace belongs to a thread.
///
/// # Panics
/// When it panics, or the namespace is gone.
pub fn inside<T: Send + 'static>(namespace: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).expect("our own namespace");
    let thread = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("a namespace to enter");
        run()
    });
    thread.join().expect("no panic inside the namespace")
}
