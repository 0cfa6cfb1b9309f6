# echo.pl default|memory PORT CERT KEY: IO::Socket::SSL with IO::Poll, one context for all.
use strict;
use warnings;
use IO::Poll qw(POLLIN POLLOUT POLLHUP POLLERR);
use IO::Socket::SSL;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my ($variant, $port, $cert, $key) = @ARGV;
my $context = IO::Socket::SSL::SSL_Context->new(SSL_server => 1, SSL_cert_file => $cert, SSL_key_file => $key)
    or die $SSL_ERROR;
Net::SSLeay::CTX_set_mode($context->{context}, Net::SSLeay::MODE_RELEASE_BUFFERS()) if $variant eq 'memory';
$SIG{PIPE} = 'IGNORE';
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 4096, ReuseAddr => 1,
    Blocking => 0) or die $!;
my $poll = IO::Poll->new;
$poll->mask($listener => POLLIN);
my (%shaking, %kept);

sub drop {
    my ($socket) = @_;
    # After a failure the socket has another class, and IO::Poll identifies it by its string form.
    bless $socket, 'IO::Socket::SSL';
    delete $shaking{$socket};
    delete $kept{$socket};
    $poll->remove($socket);
    $socket->close(SSL_no_shutdown => 1);
}

# Returns the events to wait for; nothing if the connection has ended.
sub awaited { $SSL_ERROR == SSL_WANT_READ ? POLLIN : $SSL_ERROR == SSL_WANT_WRITE ? POLLOUT : 0 }

sub work {
    my ($socket) = @_;
    if ($shaking{$socket}) {
        return awaited() unless $socket->accept_SSL;
        delete $shaking{$socket};
    }
    while (1) {
        if (defined $kept{$socket}) {
            my $sent = $socket->syswrite($kept{$socket});
            return awaited() unless $sent;
            substr($kept{$socket}, 0, $sent, '');
            next if length $kept{$socket};
            delete $kept{$socket};
        }
        my $got = $socket->sysread(my $bytes, 16384);
        return defined $got ? 0 : awaited() unless $got;
        $kept{$socket} = $bytes;
    }
}

while ($poll->poll >= 0) {
    for my $socket ($poll->handles(POLLIN | POLLOUT | POLLHUP | POLLERR)) {
        if ($socket == $listener) {
            while (my $new = $listener->accept) {
                $new->blocking(0);
                setsockopt($new, IPPROTO_TCP, TCP_NODELAY, 1);
                $new = IO::Socket::SSL->start_SSL($new, SSL_server => 1, SSL_startHandshake => 0,
                    SSL_reuse_ctx => $context);
                $shaking{$new} = 1;
                $poll->mask($new => POLLIN);
            }
            next;
        }
        my $wanted = work($socket);
        $wanted ? $poll->mask($socket => $wanted) : drop($socket);
    }
}
