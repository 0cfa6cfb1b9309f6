//! nginx as a terminator of TCP streams. Debian's packages: nginx, libnginx-mod-stream.

use std::path::Path;

use super::settings::{Launch, Settings, Target, write};
use crate::tools;

const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

pub(super) fn prepare(settings: &Settings, folder: &Path) -> Launch {
    assert!(
        Path::new(MODULE).exists(),
        "nginx has no stream module ({MODULE}): run interop/install"
    );
    let target = match &settings.target {
        Target::Tcp(address) => address.to_string(),
        Target::Unix(path) => format!("unix:{}", path.display()),
        Target::Echo => unreachable!("only for dormouse"),
    };
    let alpn = match settings.alpn.as_slice() {
        [] => String::new(),
        protocols => format!("ssl_alpn {};", protocols.join(" ")),
    };
    let sessions = if settings.value("tickets") == Some("0") {
        "ssl_session_cache off; ssl_session_tickets off;"
    } else {
        "ssl_session_cache shared:interop:1m; ssl_session_tickets on;"
    };
    let text = format!(
        "load_module {MODULE};
daemon off;
# As root: the test's folder is closed to others.
user {user};
worker_processes {workers};
pid {folder}/nginx.pid;
error_log stderr info;
events {{ worker_connections 4096; }}
stream {{
    server {{
        listen {listen} ssl backlog=4096;
        proxy_pass {target};
        proxy_half_close on;
        tcp_nodelay on;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
        {alpn}
        {sessions}
    }}
}}
",
        user = user(),
        workers = settings.workers,
        folder = folder.display(),
        listen = settings.listen,
        cert = settings.certificate.cert.display(),
        key = settings.certificate.key.display(),
    );
    let file = write(folder, "nginx.conf", &text);
    Launch {
        command: tools::nginx(Path::new(&file)),
        ready_line: None,
    }
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".into())
}
