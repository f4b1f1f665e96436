-- Load the attempts, from the lake's own files.
copy attempts from stdin (format csv);
