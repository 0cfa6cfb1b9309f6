#!/usr/bin/env escript
%% Erlang/OTP's ssl (erlang-ssl): the same as stack.c.
%%! -kernel logger_level emergency

main([Role, Host, Port, Version, Certificate, Key, Authority]) ->
    {ok, _} = application:ensure_all_started(ssl),
    {ok, Address} = inet:parse_address(Host),
    Versions = case Version of "1.3" -> ['tlsv1.3']; "1.2" -> ['tlsv1.2'] end,
    Common = [binary, {active, false}, {packet, raw}, {versions, Versions}, {ip_or_host(Role), Address},
              {certfile, Certificate}, {keyfile, Key}, {cacertfile, Authority}, {verify, verify_peer}],
    Options = lists:keydelete(host, 1, Common),
    case Role of
        "client" -> client(Address, list_to_integer(Port), hd(Versions), Options);
        "server" -> server(list_to_integer(Port), hd(Versions), Options)
    end.

ip_or_host("server") -> ip;
ip_or_host("client") -> host.

%% ---- client ----

client(Host, Port, Version, Options) ->
    Named = [{server_name_indication, "localhost"},
             {customize_hostname_check, [{match_fun, fun(_, _) -> default end}]} | Options],
    Sessions = case Version of 'tlsv1.3' -> [{session_tickets, auto}]; _ -> [{reuse_sessions, true}] end,
    First = connect(Host, Port, Named ++ Sessions),
    ok = ssl:send(First, "echo\n"),
    echo(First, <<"before\n">>),
    Updated = update(First, Version),
    echo(First, <<"after\n">>),
    finish(First, Updated, 0),
    Second = connect(Host, Port, Named ++ Sessions),
    ok = ssl:send(Second, "download 50000\n"),
    finish(Second, 0, 50000).

connect(Host, Port, Options) ->
    {ok, Socket} = ssl:connect(Host, Port, Options, 10000),
    Socket.

%% It cannot close one direction alone: `shutdown` sends a FIN without close_notify.
finish(Socket, Updated, Expected) ->
    {ok, Facts} = ssl:connection_information(Socket, [protocol, session_resumption]),
    Received = case Expected of 0 -> 0; _ -> rest(Socket, 0) end,
    ssl:close(Socket),
    say(Facts, Updated, io_lib:format("received=~b", [Received])).

rest(Socket, Count) ->
    case ssl:recv(Socket, 0, 10000) of
        {ok, Bytes} -> rest(Socket, Count + byte_size(Bytes));
        {error, closed} -> Count
    end.

echo(Socket, Line) ->
    ok = ssl:send(Socket, Line),
    {ok, Line} = ssl:recv(Socket, byte_size(Line), 10000).

%% ---- server ----

server(Port, Version, Options) ->
    Tickets = case Version of 'tlsv1.3' -> [{session_tickets, stateless}]; _ -> [] end,
    {ok, Listener} = ssl:listen(Port, [{reuseaddr, true}, {fail_if_no_peer_cert, true} | Options] ++ Tickets),
    io:format("listening~n"),
    serve(Listener, Version).

serve(Listener, Version) ->
    {ok, Accepted} = ssl:transport_accept(Listener),
    {ok, Socket} = ssl:handshake(Accepted, 10000),
    {ok, Facts} = ssl:connection_information(Socket, [protocol, session_resumption]),
    %% A resumed connection has no certificate of the peer, but was made by one that had.
    Verified = case ssl:peercert(Socket) of {ok, _} -> 1; _ -> proplists:get_value(session_resumption, Facts) end,
    Updated = answer(Socket, Version, 0),
    ssl:close(Socket),
    say(Facts, Updated, io_lib:format("verified=~b", [number(Verified)])),
    serve(Listener, Version).

%% It closes its own direction together with the client's, so the client requests the close.
answer(Socket, Version, Updated) ->
    case ssl:recv(Socket, 0) of
        {ok, <<"quit\n">>} -> Updated;
        {ok, <<"update", _/binary>> = Bytes} ->
            More = update(Socket, Version),
            ok = ssl:send(Socket, Bytes),
            answer(Socket, Version, Updated + More);
        {ok, Bytes} ->
            ok = ssl:send(Socket, Bytes),
            answer(Socket, Version, Updated);
        {error, closed} -> Updated
    end.

%% ---- both ----

update(Socket, 'tlsv1.3') -> ok = ssl:update_keys(Socket, read_write), 1;
update(_, _) -> 0.

say(Facts, Updated, Rest) ->
    Name = case proplists:get_value(protocol, Facts) of 'tlsv1.3' -> "TLSv1.3"; 'tlsv1.2' -> "TLSv1.2" end,
    Resumed = number(proplists:get_value(session_resumption, Facts)),
    io:format("version=~s resumed=~b updated=~b ~s~n", [Name, Resumed, Updated, Rest]).

number(true) -> 1;
number(false) -> 0;
number(N) -> N.
