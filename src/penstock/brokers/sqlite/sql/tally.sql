-- Serves every verb that moves jobs: how many more (or fewer) of a lane are in a state.
insert into penstock_tally (lane, state, minute, jobs) values (?, ?, ?, ?)
    on conflict (lane, state, minute) do update set jobs = jobs + excluded.jobs;
