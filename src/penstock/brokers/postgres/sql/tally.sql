-- Serves every verb that moves jobs: how many more (or fewer) of a lane are in a state.
insert into penstock.tally (lane, state, minute, jobs) values (%s, %s, %s, %s);
