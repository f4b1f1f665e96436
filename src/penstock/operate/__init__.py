"""What people see and do, for the command line, REST and the pages alike."""
