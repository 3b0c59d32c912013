from symloss.cli import main

main()
