% For each number N that it reads: N rounds of threads, message queues, processes and exceptions.
:- use_module(library(process)).
:- use_module(library(readutil)).
:- initialization(main, main).

count(0, S, S) :- !.
count(N, S0, S) :- atom_length(N, L), S1 is S0 + L, N1 is N - 1, count(N1, S1, S).

worker(Queue, N) :- count(N, 0, S), thread_send_message(Queue, done(S)).

play(0, S, S) :- !.
play(N, S0, S) :-
    thread_self(Me),
    findall(Id, (between(1, 4, K), M is 100 * K, thread_create(worker(Me, M), Id)), Ids),
    findall(C, (member(_, Ids), thread_get_message(done(C))), Cs),
    forall(member(Id, Ids), thread_join(Id, true)),
    sum_list(Cs, Sum),
    Code is N mod 7,
    format(atom(Script), 'exit ~w', [Code]),
    process_create('/bin/sh', ['-c', Script], [process(Pid)]),
    process_wait(Pid, exit(Code)),
    catch(throw(ball(N)), ball(Caught), true),
    S1 is S0 + Sum + Caught,
    N1 is N - 1,
    play(N1, S1, S).

main :-
    read_line_to_string(user_input, Line),
    (   Line == end_of_file -> true
    ;   number_string(N, Line), play(N, 0, S), format("ran ~w ~w~n", [N, S]), flush_output, main
    ).
