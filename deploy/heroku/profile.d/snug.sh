# Sourced when a dyno starts. SNUG_ENABLED=true puts every process under snug; spaces around it do no harm. Without the library,
# or without the variable, the application starts as ever.
for snug_word in ${SNUG_ENABLED:-}; do
  case $snug_word in
    true | TRUE | True | 1 | yes | on)
      if [ -r "$HOME/vendor/snug/libsnug.so" ]; then
        export LD_PRELOAD="$HOME/vendor/snug/libsnug.so${LD_PRELOAD:+:$LD_PRELOAD}"
      fi
      ;;
  esac
done
unset snug_word
# For snug check, and for snug run in a Procfile.
export PATH="$PATH:$HOME/vendor/snug"
