/* Botan 2 (libbotan-2-dev), which has no TLS 1.3. It closes both directions at once. */
#include <botan/auto_rng.h>
#include <botan/certstor.h>
#include <botan/data_src.h>
#include <botan/pkcs8.h>
#include <botan/tls_client.h>
#include <botan/tls_server.h>
#include <botan/tls_session_manager.h>
#include <botan/x509path.h>

#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>

extern "C" {
#include "stack.h"
}

using namespace Botan;

namespace {

const options *given;
AutoSeeded_RNG generator;

/* The certificate, the trusted CA, and the ticket key. */
class Credentials : public Credentials_Manager {
  public:
    explicit Credentials(const options *of) : certificate(of->certificate), authority(of->authority) {
        trusted.add_certificate(authority);
        DataSource_Stream source(of->key);
        key = PKCS8::load_key(source);
        ticket_key = SymmetricKey(generator, 32);
    }
    std::vector<Certificate_Store *> trusted_certificate_authorities(const std::string &,
                                                                     const std::string &) override {
        return {&trusted};
    }
    std::vector<X509_Certificate> cert_chain(const std::vector<std::string> &types,
                                             const std::string &, const std::string &) override {
        for (const auto &type : types)
            if (type == key->algo_name())
                return {certificate};
        return {};
    }
    Private_Key *private_key_for(const X509_Certificate &, const std::string &,
                                 const std::string &) override {
        return key.get();
    }
    SymmetricKey psk(const std::string &type, const std::string &context,
                     const std::string &identity) override {
        if (type == "tls-server" && context == "session-ticket")
            return ticket_key;
        return Credentials_Manager::psk(type, context, identity);
    }

  private:
    X509_Certificate certificate, authority;
    Certificate_Store_In_Memory trusted;
    std::unique_ptr<Private_Key> key;
    SymmetricKey ticket_key;
};

class Policy : public TLS::Policy {
    bool require_client_certificate_authentication() const override { return given->is_server; }
    bool require_cert_revocation_info() const override { return false; }
};

std::unique_ptr<Credentials> credentials;
std::unique_ptr<TLS::Session_Manager_In_Memory> sessions;
Policy policy;

} // namespace

struct tls : public TLS::Callbacks {
    explicit tls(int socket) : fd(socket) {}

    void tls_emit_data(const uint8_t data[], size_t size) override {
        while (size > 0) {
            ssize_t n = ::write(fd, data, size);
            /* The peer may have disconnected after its close_notify. */
            if (n <= 0)
                return;
            data += n;
            size -= size_t(n);
        }
    }
    void tls_record_received(uint64_t, const uint8_t data[], size_t size) override {
        received.append(reinterpret_cast<const char *>(data), size);
    }
    void tls_alert(TLS::Alert alert) override {
        if (alert.type() == TLS::Alert::CLOSE_NOTIFY)
            has_ended = true;
        else
            fail("alert", alert.type_string().c_str());
    }
    bool tls_session_established(const TLS::Session &session) override {
        version = session.version() == TLS::Protocol_Version::TLS_V12 ? "TLSv1.2" : "other";
        is_verified = !session.peer_certs().empty();
        return true;
    }
    void tls_verify_cert_chain(const std::vector<X509_Certificate> &chain,
                               const std::vector<std::shared_ptr<const OCSP::Response>> &ocsp,
                               const std::vector<Certificate_Store *> &trusted, Usage_Type usage,
                               const std::string &name, const TLS::Policy &by) override {
        verifies = true;
        Callbacks::tls_verify_cert_chain(chain, ocsp, trusted, usage, name, by);
    }
    void receive() {
        uint8_t bytes[4096];
        ssize_t n = ::read(fd, bytes, sizeof bytes);
        if (n <= 0)
            fail("read", "an end without close_notify");
        channel->received_data(bytes, size_t(n));
    }

    int fd;
    std::unique_ptr<TLS::Channel> channel;
    std::string received, version;
    bool has_ended = false, is_verified = false, verifies = false;
};

void tls_setup(const options *of) {
    given = of;
    if (of->is_tls13)
        fail("version", "this Botan has no TLS 1.3");
    credentials = std::make_unique<Credentials>(of);
    sessions = std::make_unique<TLS::Session_Manager_In_Memory>(generator);
}

tls *tls_open(int fd) {
    auto *made = new tls(fd);
    TLS::Server_Information server("localhost", uint16_t(std::stoi(given->port)));
    try {
        if (given->is_server)
            made->channel = std::make_unique<TLS::Server>(*made, *sessions, *credentials, policy, generator);
        else
            made->channel = std::make_unique<TLS::Client>(*made, *sessions, *credentials, policy,
                                                          generator, server,
                                                          TLS::Protocol_Version::TLS_V12);
        while (!made->channel->is_active())
            made->receive();
    } catch (const std::exception &error) {
        fail("handshake", error.what());
    }
    return made;
}

int tls_read(tls *of, char *bytes, int max) {
    while (of->received.empty() && !of->has_ended)
        of->receive();
    size_t n = std::min(of->received.size(), size_t(max));
    memcpy(bytes, of->received.data(), n);
    of->received.erase(0, n);
    return int(n);
}

void tls_write(tls *of, const char *bytes, int count) {
    of->channel->send(reinterpret_cast<const uint8_t *>(bytes), size_t(count));
}

int tls_update(tls *) { return 0; }

/* Botan keeps sessions on its own. */
void tls_save(tls *) {}

extern const int tls_half_closes = 0;

void tls_end(tls *of) { of->channel->close(); }

const char *tls_version(tls *of) { return of->version.c_str(); }

/* A resumed handshake verifies nothing. */
int tls_is_resumed(tls *of) { return !of->verifies; }

int tls_is_client_verified(tls *of) { return of->is_verified; }

void tls_free(tls *of) { delete of; }
