//! Names of services (IANA), which stunnel takes from /etc/services.

const PORTS: [(&str, u16); 36] = [
    ("amqps", 5671),
    ("domain", 53),
    ("domain-s", 853),
    ("ftp", 21),
    ("ftps", 990),
    ("ftps-data", 989),
    ("http", 80),
    ("http-alt", 8080),
    ("https", 443),
    ("imap", 143),
    ("imap2", 143),
    ("imaps", 993),
    ("irc", 6667),
    ("ircd", 6667),
    ("ircs", 994),
    ("ircs-u", 6697),
    ("ldap", 389),
    ("ldaps", 636),
    ("mqtt", 1883),
    ("mysql", 3306),
    ("nntp", 119),
    ("nntps", 563),
    ("pop3", 110),
    ("pop3s", 995),
    ("postgresql", 5432),
    ("redis", 6379),
    ("rsync", 873),
    ("secure-mqtt", 8883),
    ("sip-tls", 5061),
    ("smtp", 25),
    ("smtps", 465),
    ("ssh", 22),
    ("ssmtp", 465),
    ("submission", 587),
    ("submissions", 465),
    ("telnets", 992),
];

pub(super) fn of_service(name: &str) -> Option<u16> {
    let name = name.to_ascii_lowercase();
    let found = PORTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, port)| *port)
}
