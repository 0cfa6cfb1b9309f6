# lwp.pl URL new|shared|kept [TLSv1_2]: 40 requests like the load script of the case: with a new
# agent for each, with one TLS context for all, or with one agent that keeps connections.
use strict;
use warnings;
use IO::Socket::SSL;
use LWP::UserAgent;

my ($url, $how, $version) = @ARGV;
my %options = (verify_hostname => 1, SSL_version => $version // 'SSLv23');
# A separate context has its own version, and the agent's is ignored.
$options{SSL_reuse_ctx} = IO::Socket::SSL::SSL_Context->new(
    SSL_version => $options{SSL_version}, SSL_ca_file => $ENV{SSL_CERT_FILE}, SSL_verify_mode => SSL_VERIFY_PEER, SSL_session_cache_size => 64)
    if $how eq 'shared';
my $kept = $how eq 'kept' ? LWP::UserAgent->new(ssl_opts => \%options, keep_alive => 8) : undef;
for (1 .. 40) {
    my $answer = ($kept // LWP::UserAgent->new(ssl_opts => \%options))->get($url);
    die $answer->status_line unless $answer->is_success;
}
