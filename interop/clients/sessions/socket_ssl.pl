#!/usr/bin/perl
# Perl's IO::Socket::SSL: one context with a cache of sessions for all connections.
use strict;
use warnings;
use Getopt::Long;
use IO::Socket::SSL;

my ($url, $host, $ca, $version, $requests);
GetOptions('url=s' => \$url, 'resolve=s' => \$host, 'ca=s' => \$ca, 'version=s' => \$version, 'requests=i' => \$requests)
    or die "usage: as the other clients\n";
my ($port) = $url =~ /:(\d+)$/;
my $context = IO::Socket::SSL::SSL_Context->new(
    SSL_version => 'TLSv' . $version =~ tr/./_/r,
    SSL_ca_file => $ca,
    SSL_verify_mode => SSL_VERIFY_PEER,
    SSL_session_cache_size => 64,
) or die $SSL_ERROR;
my $resumed = 0;
for (1 .. $requests) {
    my $socket = IO::Socket::SSL->new(
        PeerAddr => "$host:$port",
        SSL_reuse_ctx => $context,
        SSL_hostname => 'localhost',
        SSL_verifycn_name => 'localhost',
        SSL_verifycn_scheme => 'http',
        SSL_session_key => 'localhost',
    ) or die $SSL_ERROR;
    $resumed++ if $socket->get_session_reused;
    print $socket "GET /bytes/100 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    1 while <$socket>;
    # Without it, OpenSSL drops the session.
    $socket->close;
}
print "{\"requests\": $requests, \"resumed\": $resumed}\n";
