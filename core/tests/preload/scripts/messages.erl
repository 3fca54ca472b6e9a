%% usage: erl -run messages main SCALE. Prints sums that do not depend on how processes were scheduled.
-module(messages).
-export([main/1, ring/2, worker/1]).

main([Text]) ->
    Scale = list_to_integer(Text),
    io:format("ring ~p~n", [ring_sum(500, 20000 * Scale)]),
    io:format("crowd ~p~n", [crowd(3000 * Scale)]),
    io:format("tables ~p~n", [tables(20000 * Scale)]),
    io:format("binaries ~p~n", [binaries(2000 * Scale)]),
    io:format("code ~p~n", [code_loading(20 * Scale)]),
    io:format("done~n"),
    halt(0).

%% A token goes round; each process adds one.
ring_sum(Members, Hops) ->
    First = lists:foldl(fun(_, Next) -> spawn(?MODULE, ring, [Next, self()]) end, self(), lists:seq(1, Members)),
    First ! {token, 0, Hops},
    pass(First).

pass(First) ->
    receive
        {token, Sum, Left} when Left =< 0 -> Sum;
        {token, Sum, Left} -> First ! {token, Sum, Left}, pass(First)
    end.

ring(Next, Owner) ->
    receive {token, Sum, Left} -> Next ! {token, Sum + 1, Left - 1}, ring(Next, Owner) end.

%% Many short processes, each with a heap of its own, that answer with large terms.
crowd(Count) ->
    Self = self(),
    [spawn_link(?MODULE, worker, [{Self, N}]) || N <- lists:seq(1, Count)],
    lists:sum([receive {N, List} -> length(List) + N end || N <- lists:seq(1, Count)]).

worker({Owner, N}) -> Owner ! {N, [{I, integer_to_list(I * N)} || I <- lists:seq(1, N rem 300)]}.

tables(Count) ->
    Table = ets:new(t, [ordered_set, public, {write_concurrency, true}]),
    Self = self(),
    [spawn_link(fun() ->
        [ets:insert(Table, {N, binary:copy(<<"x">>, N rem 200), {N, [N]}}) || N <- lists:seq(Part, Count, 4)],
        Self ! ready
     end) || Part <- lists:seq(1, 4)],
    [receive ready -> ok end || _ <- lists:seq(1, 4)],
    [ets:delete(Table, N) || N <- lists:seq(1, Count, 3)],
    Sum = ets:foldl(fun({N, B, _}, Sum) -> Sum + N + byte_size(B) end, 0, Table),
    ets:delete(Table),
    Sum.

binaries(Count) ->
    Parts = [erlang:md5(term_to_binary(lists:seq(1, N rem 1000))) || N <- lists:seq(1, Count)],
    Large = iolist_to_binary(lists:duplicate(500, Parts)),
    Packed = zlib:compress(Large),
    Large = zlib:uncompress(Packed),
    {byte_size(Large), erlang:crc32(Large), length(binary:matches(Large, hd(Parts)))}.

code_loading(Count) ->
    lists:sum([load(N) || N <- lists:seq(1, Count)]).

load(N) ->
    Forms = [{attribute, 1, module, made}, {attribute, 2, export, [{f, 1}]},
             {function, 3, f, 1, [{clause, 3, [{var, 3, 'X'}], [], [{op, 3, '+', {var, 3, 'X'}, {integer, 3, N}}]}]}],
    {ok, Module, Binary} = compile:forms(Forms),
    code:purge(Module),
    {module, Module} = code:load_binary(Module, "made", Binary),
    Module:f(1).
